"""Ops of the patches family."""

from __future__ import annotations
