"""Ops of the counting family."""

from __future__ import annotations
