"""Questions and assertions that libraries put to torch's tracing, asked of plain values."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu


def _assert_async(input: Any, assert_msg: str = "") -> None:
    """Raise `RuntimeError` unless the tensor's one value is true."""
    if not bool(input):
        raise RuntimeError(assert_msg or "Expected Tensor with single nonzero value, but got zero")


def alert_not_deterministic(caller: str) -> None:
    """Raise where deterministic algorithms are demanded."""
    if lu.are_deterministic_algorithms_enabled():
        raise RuntimeError(
            f"{caller} does not have a deterministic implementation, but you set "
            "'torch.use_deterministic_algorithms(True)'."
        )


def is_contiguous_or_false(a: Any) -> bool:
    """Whether the elements lie in order."""
    return bool(a.is_contiguous())


def as_bool(a: Any) -> bool:
    """The truth of a condition over sizes: they are known."""
    return bool(a)


def as_int(a: Any) -> int:
    """A size as a number."""
    return int(a)
