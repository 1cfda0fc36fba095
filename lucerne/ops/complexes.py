"""Ops of the complexes family."""

from __future__ import annotations
