"""Ops of the statistics family."""

from __future__ import annotations
