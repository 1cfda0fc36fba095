"""Ops of the dropout family."""

from __future__ import annotations
