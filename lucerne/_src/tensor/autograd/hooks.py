"""Handles that take a hook away again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, MutableMapping
from typing import Any

from lucerne._src.base.process.structure_version import note_change

_ids = itertools.count()


class RemovableHandle:
    """What registering a hook returns: `remove()` undoes it, as does the end of a `with` block."""

    def __init__(self, hooks_dict: MutableMapping[int, Any], *, extra_dict: Any = None) -> None:
        """`extra_dict`: one dictionary or several that also know the hook's number."""
        self._hooks = hooks_dict
        several = isinstance(extra_dict, (list, tuple))
        self._extra: tuple[Any, ...] = tuple(extra_dict) if several else (extra_dict,)
        self.id = next(_ids)
        note_change()

    @classmethod
    def add(cls, hooks: MutableMapping[int, Any], hook: Callable[..., Any]) -> RemovableHandle:
        handle = cls(hooks)
        hooks[handle.id] = hook
        return handle

    def run_last(self) -> None:
        """Move the hook behind all others, whenever they are registered."""
        self._hooks[-1 - self.id] = self._hooks.pop(self.id)
        self.id = -1 - self.id

    def remove(self) -> None:
        note_change()
        self._hooks.pop(self.id, None)
        for more in self._extra:
            if more is not None:
                more.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()
