"""`launch` for runners that have none: what machine code asks of a call's tensors, asked in Python.

With it a call goes the short way (`CacheEntry.quick`) on every device. Each question is put to all
tensors at once (a list of answers beside a list of expected ones): that is several times as fast as
a loop over the tensors with all questions for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.contract.backend import Runner, TensorState
from lucerne._src.ir.program import Program
from lucerne._src.tensor.base import plain_types, tensor_maker
from lucerne._src.tensor.eager.inplace import bump


def are_apart(
    tensors: Sequence[Any], written: Sequence[int], groups: Sequence[int] | None = None
) -> bool:
    """Whether no tensor that is written shares bytes with another one; `groups`: those that have
    the same number, not 0, may."""
    regions: dict[int, list[tuple[int, int, int]]] = {}
    for k, t in enumerate(tensors):
        size = t._meta.dtype.itemsize
        start = t._offset * size
        region = (start, start + t._meta.span * size, k)
        regions.setdefault(id(t._storage.buffer), []).append(region)
    marked = frozenset(written)
    return not any(
        start < other_stop and other < stop and (k in marked or j in marked)
        and not (groups and groups[k] and groups[k] == groups[j])
        for found in regions.values()
        if len(found) > 1
        for at, (start, stop, k) in enumerate(found)
        for other, other_stop, j in found[:at]
    )  # fmt: skip


class PythonLaunch(Runner):
    """A runner of a program with `launch` in front."""

    def __init__(self, inner: Runner, program: Program) -> None:
        self.inner, self.program = inner, program
        self._metas = list(program.arguments)
        self._results = [tensor_maker(meta) for meta in program.results]
        self._written = sorted(program.written)
        self.launch = self._launch
        self.expect()

    def __call__(
        self,
        arguments: Sequence[TensorState],
        numbers: Sequence[float],
        results: Sequence[TensorState],
    ) -> None:
        self.inner(arguments, numbers, results)

    def expect(
        self,
        requires_grad: Sequence[bool | None] | None = None,
        groups: Sequence[int] | None = None,
        kinds: Sequence[type | None] | None = None,
    ) -> None:
        flags = list(requires_grad or ())
        self._asked = [k for k, flag in enumerate(flags) if flag is not None]
        self._flags = [flag for flag in flags if flag is not None]
        self._asks_all = len(self._asked) == len(self._metas)
        self._groups = groups
        self._kinds = list(kinds or [None] * len(self._metas))
        self._good: list[type] = []
        """Classes of the arguments of a call that were found to be as expected."""

    def _launch(
        self, first: tuple[Any, ...], second: tuple[Any, ...], numbers: tuple[Any, ...] = ()
    ) -> tuple[Any, ...] | None:
        given = [*first, *second]
        classes = list(map(type, given))
        if classes != self._good and not self._are_expected(classes):
            return None
        if [t._meta for t in given] != self._metas:
            return None
        asked = given if self._asks_all else [given[k] for k in self._asked]
        if [t._needs_grad for t in asked] != self._flags:
            return None
        if self._written:
            memories = {id(t._storage.buffer) for t in given}
            if len(memories) < len(given) and not are_apart(given, self._written, self._groups):
                return None
        results = tuple([make() for make in self._results])
        self.inner(given, numbers, results)
        for k in self._written:
            bump(given[k])
        return results

    def _are_expected(self, classes: list[type]) -> bool:
        if len(classes) != len(self._kinds):
            return False
        for found, kind in zip(classes, self._kinds, strict=True):
            if found not in plain_types if kind is None else found is not kind:
                return False
        self._good = classes
        return True
