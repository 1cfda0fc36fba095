"""Where a tensor lives: a type name and an index.

Which names exist is the backend registry's business.
"""

from __future__ import annotations

from collections.abc import Callable

HOST = "cpu"
"""The device whose memory Python and NumPy can see: the one name that layers above may use."""


class device:
    """A place for tensors: `device("cpu")`, `device("meta")`, `device("chip", 1)`.

    >>> import lucerne
    >>> lucerne.device("cpu")
    device(type='cpu')
    """

    __slots__ = ("_hash", "index", "type")
    type: str
    index: int | None

    def __new__(
        cls,
        device: str | device | int | None = None,
        index: int | None = None,
        *,
        type: str | None = None,
    ) -> device:
        given = type if device is None else device
        if isinstance(given, cls):
            return given
        if given is None:
            raise RuntimeError("device(): expected a device type such as 'cpu', got nothing")
        if isinstance(given, int):
            return _interned(cls, default_accelerator(), given)
        return _interned(cls, *_parse(str(given), index))

    def __repr__(self) -> str:
        tail = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{tail})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and self.type == other.type and self.index == other.index

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined]

    def __enter__(self) -> device:
        """Inside `with device(...)` new tensors go there."""
        entered.append(self)
        for told in watchers:
            told(1)
        return self

    def __exit__(self, *exc: object) -> None:
        entered.pop()
        for told in watchers:
            told(-1)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return device, (str(self),)

    def __deepcopy__(self, memo: object) -> device:
        return self


# Types of torch's own: they can be named without a backend that serves them; a tensor needs one.
_TORCH = (
    "cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia",
    "xla", "lazy", "vulkan", "mps", "meta", "hpu", "mtia", "privateuseone",
)  # fmt: skip
entered: list[device] = []
"""Devices whose `with` blocks are open, the innermost last."""
watchers: list[Callable[[int], None]] = []
"""Told 1 and -1 when `with device(...)` begins and ends: what was learned outside may not hold."""
_KNOWN: dict[tuple[str, int | None], device] = {}
_is_known_type: Callable[[str], bool] | None = None


def set_known_types(check: Callable[[str], bool]) -> None:
    """Called by the backend registry, which alone knows what devices there are."""
    global _is_known_type
    _is_known_type = check


def is_known_type(device_type: str) -> bool:
    """Whether there is a backend of this name."""
    return _is_known_type is not None and _is_known_type(device_type)


_count_of: Callable[[str], int] | None = None


def set_count(count: Callable[[str], int]) -> None:
    """Called by the backend registry: how many devices of a type there are."""
    global _count_of
    _count_of = count


def settled(where: device) -> device:
    """The device a tensor is on when `where` was asked for: number 0 of a type is the type itself,
    and there must be one of that number."""
    if where.index is None or where.type in (HOST, "meta"):
        return where
    count = 1 if _count_of is None else _count_of(where.type)
    if where.index >= count:
        raise RuntimeError(
            f"invalid device ordinal: {where} was asked for, and of the device type "
            f"{where.type!r} there {'is' if count == 1 else 'are'} {count} (numbered from 0)"
        )
    return _interned(device, where.type, None) if where.index == 0 else where


def default_accelerator() -> str:
    return HOST


def _interned(cls: type[device], kind: str, number: int | None) -> device:
    found = _KNOWN.get((kind, number))
    if found is None:
        found = object.__new__(cls)
        found.type = kind
        found.index = number
        found._hash = hash((kind, number))  # type: ignore[attr-defined]
        _KNOWN[kind, number] = found
    return found


def _parse(text: str, index: int | None) -> tuple[str, int | None]:
    kind, colon, tail = text.partition(":")
    if colon:
        if index is not None:
            raise RuntimeError(
                f"device(): type must not include an index, got {text!r} and {index}"
            )
        if not tail.isdigit() or (len(tail) > 1 and tail[0] == "0"):
            raise RuntimeError(f"Invalid device string: '{text}'")
        index = int(tail)
    if _is_known_type is not None and kind not in _TORCH and not _is_known_type(kind):
        raise RuntimeError(
            f"Expected one of {', '.join(_TORCH)} device type at start of device string: {kind}"
        )
    return kind, index
