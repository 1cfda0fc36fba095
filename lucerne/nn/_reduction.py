"""`lucerne.nn._reduction`: reductions by number, and from the flags of old."""

from __future__ import annotations

from lucerne._src.base.process import notices

_NUMBERS = {"none": 0, "mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """The number of a reduction: none 0, mean 1, sum 2."""
    if reduction == "elementwise_mean":
        notices.warn(
            "reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead."
        )
        return 1
    if reduction not in _NUMBERS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return _NUMBERS[reduction]


def legacy_get_string(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> str:
    """The reduction that `size_average` and `reduce` (both true by default) stand for."""
    if reduce is False:
        found = "none"
    else:
        found = "sum" if size_average is False else "mean"
    if emit_warning:
        notices.warn(
            "size_average and reduce args will be deprecated, please use "
            f"reduction='{found}' instead."
        )
    return found


def legacy_get_enum(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> int:
    """The number of `legacy_get_string`."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
