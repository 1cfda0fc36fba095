"""Ops of the special family."""

from __future__ import annotations
