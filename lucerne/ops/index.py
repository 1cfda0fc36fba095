"""Ops of the index family."""

from __future__ import annotations
