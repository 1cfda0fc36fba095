"""Exceptions that torch has and Python lacks."""

from __future__ import annotations


class LinAlgError(RuntimeError):
    """A matrix has no such factorisation or inverse: it is singular, or an iteration failed."""
