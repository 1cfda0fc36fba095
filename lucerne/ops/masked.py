"""Ops of the masked family."""

from __future__ import annotations
