"""Ops of the copies family."""

from __future__ import annotations
