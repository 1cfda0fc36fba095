"""Ops of the norms family."""

from __future__ import annotations
