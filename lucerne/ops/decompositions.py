"""Ops of the decompositions family."""

from __future__ import annotations
