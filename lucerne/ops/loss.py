"""Ops of the loss family."""

from __future__ import annotations
