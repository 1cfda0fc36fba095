"""Ops of the creation family."""

from __future__ import annotations
