"""Scenes: functions that act with a `torch` and write down what they see, the same for both."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import lucerne

_ADDRESS = re.compile(r"0x[0-9a-f]+")


def plain(x: Any) -> Any:
    """What is compared: tensors by value, containers by content, the rest by its text."""
    name = type(x).__name__
    if "Uninitialized" in name:
        return name
    if hasattr(x, "detach") and hasattr(x, "shape"):
        return name, str(x.dtype), tuple(x.shape), bool(x.requires_grad), _values(x.detach())
    if isinstance(x, dict):
        return type(x).__name__, [(plain(k), plain(v)) for k, v in x.items()]
    if isinstance(x, (list, tuple, set, frozenset)):
        return type(x).__name__, [plain(v) for v in x]
    return _ADDRESS.sub("0x", str(x).replace("lucerne", "torch"))


def _values(x: Any) -> Any:
    if x.is_meta or not x.dtype.is_floating_point:
        return "meta" if x.is_meta else str(x.tolist())
    return [round(v, 4) + 0.0 for v in x.double().flatten().tolist()]


class Notes:
    """What a scene wrote down."""

    def __init__(self) -> None:
        self.lines: list[Any] = []

    def __call__(self, *things: Any) -> None:
        self.lines.append([plain(t) for t in things])

    def of(self, *actions: Callable[[], Any]) -> None:
        """The result of each action, or its error with its text."""
        for action in actions:
            try:
                self(action())
            except Exception as error:
                self(type(error).__name__, str(error))


Scene = Callable[[Any, Notes], None]


def played(torch: Any, scene: Scene) -> list[Any]:
    torch.manual_seed(0)
    notes = Notes()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scene(torch, notes)
    told = [(w.category.__name__, plain(str(w.message))) for w in caught]
    return [*notes.lines, told]


def assert_same(scene: Scene, torch: Any) -> None:
    """The scene must go the same way with torch and with Lucerne."""
    wanted, found = played(torch, scene), played(lucerne, scene)
    for i, (a, b) in enumerate(zip(wanted, found, strict=False)):
        assert b == a, f"note {i}"
    assert len(found) == len(wanted)
