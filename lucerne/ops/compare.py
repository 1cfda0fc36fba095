"""Ops of the compare family."""

from __future__ import annotations
