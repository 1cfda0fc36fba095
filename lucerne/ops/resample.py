"""Ops of the resample family."""

from __future__ import annotations
