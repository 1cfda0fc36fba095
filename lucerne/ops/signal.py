"""Ops of the signal family."""

from __future__ import annotations
