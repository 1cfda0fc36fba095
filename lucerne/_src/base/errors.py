"""Exceptions that torch has and Python lacks."""

from __future__ import annotations


class LinAlgError(RuntimeError):
    """A matrix has no such factorisation or inverse: it is singular, or an iteration failed."""


class AcceleratorError(RuntimeError):
    """An accelerator reported a failure."""


class OutOfMemoryError(RuntimeError):
    """A device has no memory left for a tensor."""

    is_for_caller = True
    """Also from inside of a compiled function: it is no fault of the compiler's."""


class IndexBoundsError(IndexError, RuntimeError):
    """Torch raises either for a position out of bounds, depending on the op: this is both."""
