"""Ops of the scatter family."""

from __future__ import annotations
