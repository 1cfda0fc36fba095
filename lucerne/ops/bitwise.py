"""Ops of the bitwise family."""

from __future__ import annotations
