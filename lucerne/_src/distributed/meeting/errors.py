"""What goes wrong between processes."""

from __future__ import annotations


class DistError(RuntimeError):
    """Something between processes failed."""


class DistBackendError(DistError):
    """A collective failed: the message says on which rank, in which call, and at which lines."""


class DistNetworkError(DistError):
    """A connection could not be made, or broke."""


class DistStoreError(DistError):
    """The store did not answer, or not in time."""


class QueueEmptyError(DistStoreError):
    """`queue_pop` of a queue that has nothing, with `block=False`."""
