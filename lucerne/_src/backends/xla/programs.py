"""Graphs as XLA programs on cells: of one call (eager), and of a whole captured step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lucerne._src.backends.contract.backend import Runner, TensorState
from lucerne._src.backends.xla.cells import ArrayCell
from lucerne._src.backends.xla.checks import Check, PendingChecks, told
from lucerne._src.backends.xla.layout import read, write
from lucerne._src.backends.xla.mesh_calls import agree_on_call, gathered, join, mesh_of_tensors
from lucerne._src.backends.xla.meshes import MeshUse, as_before, mesh_of, place_of, stored_as
from lucerne._src.backends.xla.several import Several, agree
from lucerne._src.backends.xla.types import jtype, stored
from lucerne._src.backends.xla.walk import Walk, asks_for_mesh
from lucerne._src.base.process.source_location import describe, user_place
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.meta import NumberMeta, TensorMeta, make_meta

_BIGGEST = 1 << 63


class Reading(NamedTuple):
    """How a tensor reads a cell: the cell's own layout, the tensor's, and where it begins."""

    cell: int
    have: Any
    meta: TensorMeta
    offset: int


def number(x: Any) -> Any:
    """A Python number as an argument of a program."""
    if isinstance(x, int) and not isinstance(x, bool) and not -_BIGGEST <= x < _BIGGEST:
        return np.uint64(x & (2 * _BIGGEST - 1))
    return x


def is_whole(meta: TensorMeta, offset: int, used: int) -> bool:
    """Whether a tensor that is written covers all of a cell."""
    return not offset and meta.numel * meta.dtype.itemsize >= used and meta.is_dense


def value_of(value: Any, meta: TensorMeta) -> Any:
    """A result in the dtype and shape that it has to have."""
    return jnp.broadcast_to(stored(value, meta.dtype), tuple(meta.shape))


class Distinct:
    """Results as arrays of their own: JAX gives back an argument that is a result as it is, and
    who writes to one of the two cells would donate the array of both."""

    def __init__(self, given: Sequence[Any]) -> None:
        self._seen = {id(x) for x in given}
        self._kept: list[Any] = []

    def __call__(self, x: Any) -> Any:
        if id(x) in self._seen:
            x = jnp.copy(x)
        self._seen.add(id(x))
        self._kept.append(x)  # an id is its own only as long as the object lives
        return x


# ---- one call ------------------------------------------------------------------------------------


class CallProgram:
    """An eager call. A program is made for each way its tensors lie in their cells."""

    def __init__(self, graph: Graph, pending: PendingChecks) -> None:
        self.graph, self.pending = graph, pending
        self._metas = [v.meta if _is_tensor(v.meta) else None for v in graph.inputs]
        """Of the inputs; None: it is a number."""
        self._results = [
            (m, m.numel * m.dtype.itemsize if m.is_dense else -1)
            for m in (v.meta for v in graph.outputs)
        ]
        """Of the results, and how large a cell is that one of them fills (-1: none is)."""
        self._programs: dict[tuple[Any, ...], MadeCall] = {}
        self._whole: dict[tuple[TensorMeta, int, int], bool] = {}
        """`is_whole` of what was written so far: working it out takes as long as the call."""
        self._plain: MadeCall | None = None
        """The program for inputs that fill their cells and results that replace all of theirs."""
        self._by_mesh = any(map(asks_for_mesh, graph.nodes))

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[TensorState]) -> None:
        if self.pending.refused:
            self.pending.check()
        fed: list[Any] = []
        mesh = None
        if self._by_mesh and MeshUse.begun:
            read = (x for x, m in zip(inputs, self._metas, strict=True) if m is not None)
            mesh = mesh_of_tensors(read)
        is_plain = self._plain is not None and mesh is None
        for x, meta in zip(inputs, self._metas):  # noqa: B905 - hot path, as many by construction
            if meta is None:
                fed.append(number(x))
                continue
            cell = x._storage.buffer
            # (A tensor that lies as its cell does fills it: its offset need not be asked for.)
            if cell.meta is not meta or x._meta is not meta:
                is_plain = False
                if cell.array is None:
                    cell.settle(x._meta, x._offset)
            fed.append(cell.array)
        for o, (meta, room) in zip(outputs, self._results):  # noqa: B905
            cell = o._storage.buffer
            replaces = cell.meta is meta or (cell.meta is None and cell.nbytes == room)
            if not replaces or o._meta is not meta:
                is_plain = False
        old: list[Any] = []
        program = self._plain
        if program is None or not is_plain:
            program = self._program(inputs, outputs, old, fed, mesh)
        places = gathered(outputs) if MeshUse.begun else None
        found = program.run(old, *fed)
        if places is not None:
            found = [*map(as_before, found, places), *found[len(places) :]]
        for o, array, all_of_it in zip(outputs, found, program.whole):  # noqa: B905 - see above
            if all_of_it:
                o._storage.buffer.hold(array, o._meta)
            else:
                o._storage.buffer.array = array
        if program.checks:
            self.pending.add(found[-1], program.checks, describe(user_place()))

    def _program(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[TensorState],
        old: list[Any],
        fed: list[Any],
        mesh: Any,
    ) -> MadeCall:
        """What runs it for tensors that lie in their cells in any way; `old` gets the arrays that
        are written in part."""
        key: list[Any] = [mesh]
        plain = mesh is None and [o._meta for o in outputs] == [m for m, _ in self._results]
        for x, wanted in zip(inputs, self._metas, strict=True):
            if wanted is None:
                key.append(type(x))
                continue
            have = x._storage.buffer.meta
            plain = plain and have is x._meta is wanted
            key += (have, x._meta, x._offset)
        for o in outputs:
            cell, meta, offset = o._storage.buffer, o._meta, o._offset
            place = meta, offset, cell.used
            whole = self._whole.get(place)
            if whole is None:
                whole = self._whole[place] = is_whole(*place)
            if whole:
                key.append(meta)
                continue
            if cell.array is None:
                cell.settle(meta, offset)
            old.append(cell.array)
            key += (cell.meta, meta, offset, any(cell.array is x for x in fed))
        found = self._programs.get(tuple(key))
        if found is None:
            found = self._programs[tuple(key)] = self._made(inputs, outputs, old, fed, mesh)
        if plain and not old:
            self._plain = found
        return found

    def _made(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[TensorState],
        old: Sequence[Any],
        fed: Sequence[Any],
        mesh: Any,
    ) -> MadeCall:
        ins = [
            None if m is None else Reading(0, x._storage.buffer.meta, x._meta, x._offset)
            for x, m in zip(inputs, self._metas, strict=True)
        ]
        outs = [(o._storage.buffer, o._meta, o._offset) for o in outputs]
        targets = [
            (is_whole(meta, offset, cell.used), cell.meta, meta, offset)
            for cell, meta, offset in outs
        ]
        checks: list[Check] = []

        def run(old: list[Any], *given: Any) -> list[Any]:
            walk, own, rest = Walk(self.graph, mesh=mesh), Distinct(given), iter(old)
            values = [
                x if i is None else read(x, i.have, i.meta, i.offset)
                for x, i in zip(given, ins, strict=True)
            ]
            found, _ = walk(values)
            made = []
            for value, (whole, have, meta, offset) in zip(found, targets, strict=True):
                value = value_of(value, meta)
                made.append(own(value if whole else write(next(rest), have, meta, offset, value)))
            checks[:] = [c._replace(bad=None) for c in walk.checks]
            return [*made, told(walk.checks)] if walk.checks else made

        if Several.count > 1:
            agree_on_call(self.graph, fed)
        read_too = any(a is b for a in old for b in fed)
        jitted = jax.jit(run, donate_argnums=() if read_too else (0,))
        return MadeCall(jitted, [whole for whole, *_ in targets], checks)


class MadeCall(NamedTuple):
    """A program, and which of its results replace all of their cells."""

    run: Callable[..., Any]
    whole: list[bool]
    checks: list[Check]


# ---- a whole step --------------------------------------------------------------------------------


class StepProgram(Runner):
    """A captured graph as one program: what it writes is donated, and swapped in its cell."""

    walk = Walk

    def __init__(self, graph: Graph, constants: Mapping[int, Any], pending: PendingChecks) -> None:
        self.graph, self.pending = graph, pending
        self._inputs: list[tuple[bool, Any]] = []
        """Of each input of the graph whether it is a tensor, and the one it always is."""
        for k, v in enumerate(graph.inputs):
            self._inputs.append((isinstance(v.meta, TensorMeta), constants.get(k)))
        self._constants = [t for _, t in self._inputs if t is not None]
        self._numbers = [_kind(v.meta) for v in graph.inputs if not _is_tensor(v.meta)]
        self._programs: dict[tuple[Any, ...], MadeStep] = {}
        self._plain: MadeStep | None = None
        """The program for arguments that fill their cells and share none."""
        self._lies: list[TensorMeta] = []
        """How the cells lie then, those of the constants as well."""

    def __call__(
        self,
        arguments: Sequence[TensorState],
        numbers: Sequence[float],
        results: Sequence[TensorState],
    ) -> None:
        if self.pending.refused:
            self.pending.check()
        tensors = [*arguments, *self._constants]
        cells = [t._storage.buffer for t in tensors]
        made = self._plain
        # (A tensor that lies as its cell does fills it: its offset need not be asked for.)
        lies = [c.meta for c in cells]
        apart = lies == self._lies and len(set(cells)) == len(cells)
        if made is None or not apart or MeshUse.begun:
            made = self._program(tensors, cells, numbers)
            arrays = [cells[k].array for k in made.first]
        else:
            arrays = [c.array for c in cells]
        if numbers:
            arrays += [kind(x) for kind, x in zip(self._numbers, numbers, strict=True)]
        found = made.run(*arrays)
        for t, array, meta in zip(results, found, made.held, strict=False):
            t._storage.buffer.hold(array, meta)
        for k, array in zip(made.written, found[len(results) :], strict=False):
            cells[k].array = array
        if made.checks:
            self.pending.add(found[-1], made.checks)

    def _program(
        self, tensors: list[TensorState], cells: list[ArrayCell], numbers: Sequence[float]
    ) -> MadeStep:
        """What runs it for tensors that lie in their cells in any way."""
        for t, cell in zip(tensors, cells, strict=True):
            if cell.array is None:
                cell.settle(t._meta, t._offset)
        key: tuple[Any, ...] = *[c.meta for c in cells], *[t._offset for t in tensors]
        if len(set(cells)) < len(cells):  # some share memory
            key = *key, *_slots(cells)
        alone: list[int] = []
        if MeshUse.begun:
            places, alone = join(cells)
            key = *key, *places
        made = self._programs.get(key)
        if made is None:
            readings = self._readings(tensors, cells)
            made = self._made(readings, [c.array for c in cells], numbers)
            if Several.count > 1 and mesh_of(map(place_of, (c.array for c in cells))) is not None:
                own = [(f"argument {k}", cells[k].array) for k in alone]
                text = ("program", made.lowered_text()), ("numbers", repr(list(numbers)))
                agree(f"a step, called at {describe(user_place())}", [*text, *own])
            self._programs[key] = made
        return made

    def prepare(self) -> None:
        """Make the program for tensors that fill their cells, as most do: what can't be compiled
        is known before it is called, and compiling counts as such."""
        metas: list[TensorMeta] = [v.meta for v in self._arguments()]
        if MeshUse.begun or not all(m.is_dense for m in metas):
            return  # (how arguments lie on a mesh is seen when they come)
        held = []
        for t in self._constants:
            cell = t._storage.buffer
            if cell.array is None:
                cell.settle(t._meta, t._offset)
            held.append(cell)
        if len(set(held)) < len(held):
            return
        readings = [Reading(k, m, m, 0) for k, m in enumerate(metas)]
        for t, cell in zip(self._constants, held, strict=True):
            readings.append(Reading(len(readings), cell.meta, t._meta, t._offset))
        fed = [jax.ShapeDtypeStruct(tuple(m.shape), jtype(m.dtype)) for m in metas]
        fed += [cell.array for cell in held]
        made = self._made(readings, fed, [0] * len(self._numbers))
        self._programs[_key(readings)] = self._plain = made
        self._lies = [r.have for r in readings]

    def _arguments(self) -> list[Any]:
        pairs = zip(self.graph.inputs, self._inputs, strict=True)
        return [v for v, (is_tensor, t) in pairs if is_tensor and t is None]

    def _readings(self, tensors: list[TensorState], cells: list[ArrayCell]) -> list[Reading]:
        return [
            Reading(slot, cell.meta, t._meta, t._offset)
            for slot, cell, t in zip(_slots(cells), cells, tensors, strict=True)
        ]

    def _made(
        self, readings: list[Reading], arrays: Sequence[Any], numbers: Sequence[float]
    ) -> MadeStep:
        """`arrays`: one for each tensor, or what tells its shape and type."""
        graph, slots = self.graph, [r.cell for r in readings]
        order = self._in_graph_order(readings)
        first = [slots.index(slot) for slot in range(len(set(slots)))]
        place = {v.index: r for v, r in zip(graph.inputs, order, strict=True)}
        targets = [place[v.index] for v, _ in graph.writes]
        touched = list(dict.fromkeys(r.cell for r in targets if r is not None))
        checks: list[Check] = []
        kept: list[Any] = []
        lies = [place_of(arrays[k]) for k in first] if MeshUse.begun else [None] * len(first)
        places = {k: lies[r.cell] for k, r in place.items() if r is not None}

        def run(*given: Any) -> list[Any]:
            arrays, rest = list(given[: len(first)]), iter(given[len(first) :])
            walk, own = self.walk(graph, places), Distinct(given)
            values = [
                next(rest) if r is None else read(arrays[r.cell], r.have, r.meta, r.offset)
                for r in order
            ]
            found, new = walk(values)
            kept[:] = [walk.places.get(v.index) if v.meta.is_dense else None for v in graph.outputs]
            made = [
                stored_as(own(_laid(x, v.meta)), place)
                for x, v, place in zip(found, graph.outputs, kept, strict=True)
            ]
            kept.extend(lies[slot] for slot in touched)
            for value, r in zip(new, targets, strict=True):
                assert r is not None
                arrays[r.cell] = _written(arrays[r.cell], r, value_of(value, r.meta))
            made += [stored_as(own(arrays[slot]), lies[slot]) for slot in touched]
            checks[:] = [c._replace(bad=None) for c in walk.checks]
            return [*made, told(walk.checks)] if walk.checks else made

        fed = [arrays[k] for k in first]
        fed += [kind(x) for kind, x in zip(self._numbers, numbers, strict=True)]
        jitted = jax.jit(run, donate_argnums=tuple(touched), keep_unused=True)
        lowered = jitted.lower(*fed)
        held = [held_as(v.meta) for v in graph.outputs]
        written = [first[slot] for slot in touched]
        return MadeStep(self._compiled(lowered), first, written, held, checks, lowered, kept)

    def _compiled(self, lowered: Any) -> Any:
        return lowered.compile()

    def _in_graph_order(self, readings: list[Reading]) -> list[Reading | None]:
        """How each input of the graph is read; None: it is a number."""
        count = len(readings) - len(self._constants)
        given, constant = iter(readings[:count]), iter(readings[count:])
        return [
            None if not is_tensor else next(given) if t is None else next(constant)
            for is_tensor, t in self._inputs
        ]


class MadeStep(NamedTuple):
    """A program and which cells it takes: by a tensor that has each."""

    run: Any
    first: list[int]
    written: list[int]
    held: list[TensorMeta]
    """How the cells of the results lie."""
    checks: list[Check]
    lowered: Any
    """What XLA was given: for people."""
    places: list[Any]
    """How results and what is written are to lie (`meshes.place_of`); None: as XLA likes."""

    def lowered_text(self) -> str:
        found: str = self.lowered.as_text()
        return found


def _is_tensor(meta: Any) -> bool:
    return isinstance(meta, TensorMeta)


_KINDS: dict[type, Any] = {
    bool: np.bool_,
    int: lambda x: np.int64(x) if -_BIGGEST <= x < _BIGGEST else number(x),
    float: np.float64,
    complex: np.complex128,
}


def _kind(meta: Any) -> Any:
    kind = meta.kind if isinstance(meta, NumberMeta) else meta
    return _KINDS[kind if kind in _KINDS else float]


def _key(readings: Sequence[Reading]) -> tuple[Any, ...]:
    """Of tensors that share no memory."""
    return *[r.have for r in readings], *[r.offset for r in readings]


def _slots(cells: Sequence[ArrayCell]) -> list[int]:
    """Which cell each tensor has, by its number among the different ones."""
    places: dict[ArrayCell, int] = {}
    return [places.setdefault(cell, len(places)) for cell in cells]


def held_as(meta: TensorMeta) -> TensorMeta:
    """How a cell lies that holds a tensor: as that does, or as a row if it has gaps."""
    if meta.is_dense:
        return meta
    return make_meta(meta.dtype, (meta.span,), None, meta.device)


def _laid(value: Any, meta: TensorMeta) -> Any:
    """A result as its cell holds it."""
    value, held = value_of(value, meta), held_as(meta)
    if held is meta:
        return value
    return write(jnp.zeros(tuple(held.shape), jtype(meta.dtype)), held, meta, 0, value)


def _written(array: Any, r: Reading, value: Any) -> Any:
    if r.have is r.meta and not r.offset:
        return value
    return write(array, r.have, r.meta, r.offset, value)
