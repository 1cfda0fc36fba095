"""Ops of the embedding family."""

from __future__ import annotations
