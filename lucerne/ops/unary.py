"""Ops of the unary family."""

from __future__ import annotations
