"""Small helpers of layers: numbers as tuples, paddings, prefixes of state dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any


def repeated(x: Any, n: int) -> tuple[Any, ...]:
    """`x` as a tuple: itself if iterable, else `n` times."""
    return tuple(x) if isinstance(x, Iterable) else (x,) * n


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """`repeated` for one `n`, under a name."""

    def parse(x: Any) -> tuple[Any, ...]:
        return repeated(x, n)

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: Sequence[Any], n: int) -> tuple[Any, ...]:
    """The elements from the last to the first, each `n` times: what `F.pad` wants of a padding."""
    return tuple(x for x in reversed(t) for _ in range(n))


def _list_with_default(out_size: Any, defaults: Sequence[int]) -> list[int]:
    """Sizes where None means: as the input."""
    if isinstance(out_size, (int,)):
        return out_size  # type: ignore[return-value]
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    last = defaults[-len(out_size) :]
    return [v if v is not None else d for v, d in zip(out_size, last, strict=True)]


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Take a prefix such as `"module."` off the keys of a state dict, in place."""
    for key in list(state_dict):
        if key.startswith(prefix):
            state_dict[key[len(prefix) :]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        bare = prefix.rstrip(".")
        for key in list(metadata):
            if key in (prefix, bare) and key != "":
                metadata[""] = metadata.pop(key)
            elif key.startswith(prefix) and key != prefix:
                metadata[key[len(prefix) :]] = metadata.pop(key)
