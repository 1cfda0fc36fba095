"""Ops of the softmax family."""

from __future__ import annotations
