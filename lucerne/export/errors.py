"""What exporting, and calling what was exported, raise."""

from __future__ import annotations


class ExportError(RuntimeError):
    """A module that can't be exported as asked; the text says why and what to do."""


class ArgumentError(RuntimeError):
    """A call of an exported program with arguments it was not made for."""
