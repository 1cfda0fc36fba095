"""Ops of the activation family."""

from __future__ import annotations
