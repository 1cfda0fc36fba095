"""Ops of the attention family."""

from __future__ import annotations
