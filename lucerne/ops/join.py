"""Ops of the join family."""

from __future__ import annotations
