"""Ops of the conversions family."""

from __future__ import annotations
