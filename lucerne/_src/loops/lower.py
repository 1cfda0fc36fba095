"""Lowering: from groups of nodes to a program, with a place in memory for every value.

Views cost nothing: they are other readings of their source's place. Values live in the arena from
the step that makes them to the last that reads them; those the caller gets are made in place in
its results, and inputs that are written to are updated in place where nobody needs the old value
any more (else a copy at the end does it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lucerne._src.base.config import config
from lucerne._src.base.process.source_location import Origin
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import (
    Graph,
    Node,
    Value,
    alone,
    flat_inputs,
    geometries,
    map_values,
    one_op_graph,
    operands,
)
from lucerne._src.ir.meta import NUMBER_METAS, TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.ir.program import (
    ARENA,
    ARGUMENT,
    CONSTANT,
    RESULT,
    NumberArgument,
    Place,
    Program,
    Step,
)
from lucerne._src.ir.symbolic.numbers import checking
from lucerne._src.loops.check import check_values
from lucerne._src.loops.group import Fusion, Grouping, is_elementwise
from lucerne._src.loops.memory import Lifetime, Spare, plan
from lucerne._src.loops.notes import Notes
from lucerne._src.loops.overlap import check_overlaps
from lucerne._src.loops.updates import apart
from lucerne._src.ops.copy.cast import copy, put_region, uninitialized

_COPY: Op = copy.op  # type: ignore[attr-defined]
_PUT: Op = put_region.op  # type: ignore[attr-defined]
_EMPTY: Op = uninitialized.op  # type: ignore[attr-defined]

Takes = Callable[[list[Graph]], list[bool]]
"""Of which of some graphs the backend makes one kernel each."""

Body = Callable[[Node], Graph | None]
"""The graph that stands for a composite; None: the node is an op of its own."""


def no_body(node: Node) -> None:
    """All nodes are ops of their own."""


OVER_OPERAND: dict[str, int] = {}
"""Which operand's memory the result of a heavy op may take: none, unless the backend says so."""
SCATTERS = frozenset(("scatter", "index_put"))
"""Ops that give back their first input changed in places: over it, they write those alone."""


class StepDraft:
    """One step to be: nodes, what they read from outside, and what others read of them."""

    __slots__ = ("graph", "nodes", "outputs", "reads", "stays")

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.reads: list[Value] = []
        self.outputs: list[Value] = []
        self.graph: Graph | None = None
        """The step's graph, once somebody has asked for it."""
        self.stays: bool | None = None
        """The answer of `_stays_at_its_index`: one for all that the step makes."""


class Lowering:
    """One graph on its way to a program."""

    def __init__(
        self,
        graph: Graph,
        takes: Takes,
        fusion: Fusion | None,
        constants: Sequence[tuple[Value, Any]] = (),
        body: Body = no_body,
        over_operand: Mapping[str, int] = OVER_OPERAND,
        notes: Notes | None = None,
    ) -> None:
        graph = graph if fusion is None else apart(graph, fusion.updates)
        self.graph, self.takes, self.body, self.notes = graph, takes, body, notes
        self.over_operand = over_operand
        self.constants = dict(constants)
        self.base: dict[Value, tuple[Value, int]] = {}
        """A view: the value it is a reading of, and where it begins in bytes."""
        self.maker: dict[Value, Node] = {}
        for node in graph.nodes:
            self._enter(node)
        self.inputs = {v: k for k, v in enumerate(graph.inputs)}
        self.kept = {self._base(v) for v in graph.outputs} | {
            self._base(v) for _, v in graph.writes
        }
        self.uses = self._count_uses()
        self.inside: set[Value] = set()
        """Values that every unit makes for itself: see `_repeated`."""
        self.units = self._units(fusion)

    def _enter(self, node: Node) -> None:
        for v in node.outputs:
            self.maker[v] = node
        if node.op.kind == op_.VIEW:
            source = node.args[0]
            base, start = self.base.get(source, (source, 0))
            for v, part in zip(node.outputs, geometries(node), strict=True):
                self.base[v] = base, start + part.offset * v.meta.dtype.itemsize

    def _base(self, v: Value) -> Value:
        return self.base[v][0] if v in self.base else v

    def _count_uses(self) -> dict[Value, list[Node]]:
        """For each value in memory: the nodes that read it, themselves or through views."""
        found: dict[Value, list[Node]] = {}
        for node in self.graph.nodes:
            if node.op.kind != op_.VIEW:
                for v in operands(node.args):
                    found.setdefault(self._base(v), []).append(node)
        return found

    # ---- groups to units -----------------------------------------------------------------------

    def _units(self, fusion: Fusion | None) -> list[StepDraft]:
        nodes = self.graph.nodes
        if fusion is None:
            return [self._unit([n]) for n in nodes if n.op.kind != op_.VIEW]
        grouping = Grouping(self.graph, fusion, None if self.notes is None else self.notes.apart)
        if self.notes is not None:
            self.notes.grouping = grouping
        pieces = [[nodes[at] for at in group] for group in grouping.groups()]
        done: list[StepDraft | None] = [None] * len(pieces)
        while True:
            open_ = [k for k, unit in enumerate(done) if unit is None]
            if not open_:
                return self._repeated([unit for unit in done if unit is not None], fusion)
            units = [self._unit(pieces[k]) for k in open_]
            several = [k for k, unit in enumerate(units) if len(unit.nodes) > 1]
            taken = [True] * len(units)
            for k, answer in zip(
                several, self.takes([self.graph_of(units[k]) for k in several]), strict=True
            ):
                taken[k] = answer
            pieces, done = self._cut(
                pieces, done, dict(zip(open_, zip(units, taken, strict=True), strict=True))
            )

    def _cut(
        self,
        pieces: list[list[Node]],
        done: list[StepDraft | None],
        asked: dict[int, tuple[StepDraft, bool]],
    ) -> tuple[list[list[Node]], list[StepDraft | None]]:
        """What the backend took is done; what it did not take goes on in two parts."""
        new_pieces: list[list[Node]] = []
        new_done: list[StepDraft | None] = []
        for k, nodes in enumerate(pieces):
            unit, taken = asked.get(k, (done[k], True))
            parts = [nodes] if taken else _halves(nodes)
            if not taken and self.notes is not None:
                self.notes.refused.append(nodes)
            new_pieces += parts
            new_done += [unit if taken else None] * len(parts)
        return new_pieces, new_done

    def _repeated(self, units: list[StepDraft], fusion: Fusion) -> list[StepDraft]:
        """Free nodes go into every unit that reads them, if all of those are heavy and are taken
        with them; else they stay units of their own."""
        free: dict[Value, Node] = {}
        for unit in units:
            node = unit.nodes[0]
            if len(unit.nodes) > 1 or not self.kept.isdisjoint(node.outputs):
                continue
            if fusion.folds_into_loads(node) or fusion.recomputed_in_readers(
                node, self.uses.get(node.outputs[0], ())
            ):
                free[node.outputs[0]] = node
        while free:
            asked: dict[int, tuple[StepDraft, list[Value]]] = {}
            self.inside = set(free)
            light: set[Value] = set()
            for k, unit in enumerate(units):
                read = list(dict.fromkeys(b for v in unit.reads if (b := self._base(v)) in free))
                if read and not any(n.op.qualified in fusion.anchors for n in unit.nodes):
                    light.update(read)
                elif read:
                    asked[k] = self._unit([*(free[v] for v in read), *unit.nodes]), read
            if not light:
                answers = self.takes([self.graph_of(unit) for unit, _ in asked.values()])
                for (_, read), taken in zip(asked.values(), answers, strict=True):
                    light.update(() if taken else read)
            if not light:
                gone = set(map(id, free.values()))
                found = (asked.get(k, (unit,))[0] for k, unit in enumerate(units))
                return [
                    unit for unit in found if len(unit.nodes) > 1 or id(unit.nodes[0]) not in gone
                ]
            free = {v: node for v, node in free.items() if v not in light}
        self.inside = set()
        return units

    def _unit(self, nodes: list[Node]) -> StepDraft:
        unit = StepDraft(nodes)
        inside = {v for n in nodes for v in n.outputs}
        members = set(map(id, nodes))
        seen: dict[Value, None] = {}
        for node in nodes:
            for v in operands(node.args):
                if self._base(v) not in inside:
                    seen.setdefault(v)
        unit.reads = list(seen)
        unit.outputs = [
            v
            for n in nodes
            for v in n.outputs
            if v in self.kept
            or len(nodes) == 1
            or (v not in self.inside and any(id(r) not in members for r in self.uses.get(v, ())))
        ]
        return unit

    def graph_of(self, unit: StepDraft) -> Graph:
        """The unit as a graph of its own: the backend is asked about it, then it is a step's."""
        if unit.graph is None:
            alone = len(unit.nodes) == 1
            unit.graph = self.single(unit.nodes[0]) if alone else self._joint_graph(unit)
        return unit.graph

    def _joint_graph(self, unit: StepDraft) -> Graph:
        made = Graph()
        new: dict[Value, Value] = {v: made.input(v.meta) for v in unit.reads}

        def read(v: Value) -> Value:
            if v not in new:  # a view of something computed inside
                node = self.maker[v]
                made.place = node.place
                args = (read(node.args[0]), *node.args[1:])
                outputs = made.call(node.op, args, [o.meta for o in node.outputs])
                new.update(zip(node.outputs, outputs, strict=True))
            return new[v]

        for node in unit.nodes:
            args = map_values(read, node.args)
            made.place = node.place
            outputs = made.call(node.op, args, [v.meta for v in node.outputs])
            new.update(zip(node.outputs, outputs, strict=True))
        made.outputs = tuple(new[v] for v in unit.outputs)
        return made

    def single(self, node: Node) -> Graph:
        """The graph of one node: the op, or what stands for it."""
        return self.body(node) or alone(node)

    # ---- the program ---------------------------------------------------------------------------

    def program(self) -> Program:
        self.placing = _Placing(self)
        """Kept for whoever wants to know where each value lives."""
        return self.placing.program()


def _stays_at_its_index(low: Lowering, unit: StepDraft) -> bool:
    """Whether what a unit reads is read at the index at which it writes: its ops go element by
    element, and none reads what another made in another order (`t` of it), for then all that this
    was made of is read in that order too, and not as its own strides say."""
    if unit.stays is None:
        unit.stays = _all_stay(low, unit)
    return unit.stays


def _all_stay(low: Lowering, unit: StepDraft) -> bool:
    made = {v for node in unit.nodes for v in node.outputs}
    for node in unit.nodes:
        if not is_elementwise(node):
            return False
        for v in operands(node.args):
            base, start = low.base.get(v, (v, 0))
            if v is base or base not in made:
                continue
            if start or not (v.meta.contiguous and base.meta.contiguous):
                return False
    return True


def _halves(nodes: list[Node]) -> list[list[Node]]:
    """A heavy op and the rest, or two halves."""
    for k, node in enumerate(nodes):
        if not is_elementwise(node) and node.op.kind != op_.REDUCTION:
            return [part for part in (nodes[:k], [node], nodes[k + 1 :]) if part]
    half = len(nodes) // 2
    return [nodes[:half], nodes[half:]]


class _Placing:
    """Decides where values live, then writes the steps."""

    def __init__(self, lowering: Lowering) -> None:
        self.low = lowering
        self.graph = lowering.graph
        tensors = [v for v in self.graph.inputs if isinstance(v.meta, TensorMeta)]
        self.arguments = [v for v in tensors if v not in lowering.constants]
        self.numbers = [v for v in self.graph.inputs if not isinstance(v.meta, TensorMeta)]
        self.home: dict[Value, tuple[str, int, int]] = {}
        """Where a value lives: kind, index, offset in bytes."""
        for k, v in enumerate(self.arguments):
            self.home[v] = ARGUMENT, k, 0
        for k, v in enumerate(lowering.constants):
            self.home[v] = CONSTANT, k, 0
        self.last = self._last_reads()
        self._reads: dict[int, dict[Value, list[Value]]] = {}
        self.rooms: list[Lifetime] = []
        self.room_of: dict[Value, Lifetime] = {}
        """The values without another home."""
        self.steps: list[Step] = []
        self.written: set[int] = set()

    def _last_reads(self) -> dict[Value, int]:
        """The last unit that reads a value; those the caller gets are read at the end."""
        low = self.low
        found: dict[Value, int] = {}
        for at, unit in enumerate(low.units):
            for v in unit.reads:
                found[low._base(v)] = at
        for v in low.kept:
            found[v] = len(low.units)
        return found

    def program(self) -> Program:
        low = self.low
        self._give_results()
        updated = self._give_updates()
        for at, unit in enumerate(low.units):
            self._give_rooms(at, unit)
        saved = self._rooms_to_save(updated)
        arena = self._place_rooms([*saved.values()])
        if config.verify_passes:
            with checking():
                check_values(self, updated, {v: (ARENA, 0, r.home[1]) for v, r in saved.items()})
        for unit in low.units:
            if low.notes is not None:
                low.notes.units.append((len(self.steps), unit.nodes, unit.reads))
            self._emit(unit)
        self._finish(updated, saved)
        if config.verify_fusion:
            with checking():
                check_overlaps(self.steps, {*low.over_operand, *SCATTERS})
        return Program(
            arguments=tuple(v.meta for v in self.arguments),
            results=tuple(v.meta for v in self.graph.outputs),
            constants=tuple(low.constants.values()),
            numbers=len(self.numbers),
            arena=arena,
            steps=self.steps,
            written=frozenset(self.written),
        )

    # ---- homes ---------------------------------------------------------------------------------

    def _give_results(self) -> None:
        """A value that the caller gets is made where the caller gets it, if it may."""
        for k, v in enumerate(self.graph.outputs):
            if v not in self.home and v in self.low.maker and v not in self.low.base:
                self.home[v] = RESULT, k, 0

    def _give_updates(self) -> set[Value]:
        """New values of inputs that can be made over the old ones. Returns the inputs done."""
        low, done = self.low, set()
        made_at = {v: at for at, unit in enumerate(low.units) for v in unit.outputs}
        for target, new in self.graph.writes:
            if new in self.home or new not in made_at or target not in self.home:
                continue
            if new.meta is target.meta and self._may_overwrite(target, made_at[new], new):
                self.home[new] = self.home[target]
                self.written.add(self.home[target][1])
                done.add(target)
        return done

    def _may_overwrite(self, old: Value, at: int, new: Value) -> bool:
        """Whether the unit that makes `new` is the last to read `old`, and may do so in place."""
        low = self.low
        if self.last.get(old, -1) > at or old in low.kept:
            return False
        unit = low.units[at]
        reads = self._reads_of(at, unit).get(old)
        if not reads:
            return True
        if len(unit.nodes) == 1 and unit.nodes[0].op is _PUT:
            node = unit.nodes[0]
            return node.args[0] is old and not _reads_base(low, node.args[1], old)
        alike = all(v is old for v in reads)
        if len(unit.nodes) == 1 and unit.nodes[0].op.qualified in SCATTERS:
            args = unit.nodes[0].args
            return alike and args[0] is old and old not in operands(args[1:])
        if unit.nodes[-1].op.updates:  # behind a heavy op, which reads none of it
            before = (v for node in unit.nodes[:-1] for v in operands(node.args))
            return alike and old not in (low._base(v) for v in before)
        return alike and _stays_at_its_index(low, unit)

    def _reads_of(self, at: int, unit: StepDraft) -> dict[Value, list[Value]]:
        """What a unit reads of each value in memory: itself, or views of it."""
        found = self._reads.get(at)
        if found is None:
            found = self._reads[at] = {}
            for v in unit.reads:
                found.setdefault(self.low._base(v), []).append(v)
        return found

    def _give_rooms(self, at: int, unit: StepDraft) -> None:
        """Room for what a unit makes, that of something which ends here if it may be."""
        taken: list[Lifetime] = []
        for v in unit.outputs:
            if v in self.home:
                continue
            last = max(self.last.get(v, at), at)
            room = self._room_that_ends(at, unit, v)
            if room is None or room in taken:
                room = Lifetime(v.meta.span * v.meta.dtype.itemsize, at, last)
                self.rooms.append(room)
            taken.append(room)
            room.last = max(room.last, last)
            self.room_of[v] = room

    def _room_that_ends(self, at: int, unit: StepDraft, new: Value) -> Lifetime | None:
        """The room of a value that only this unit still reads, and that `new` may overwrite."""
        if len(unit.nodes) == 1 and unit.nodes[0].op is _PUT:
            return self.room_of[unit.nodes[0].args[0]] if self._continues(at, unit) else None
        for v in unit.reads:
            old, start = self.low.base.get(v, (v, 0))
            room = self.room_of.get(old)
            if room is None or room.last > at or start or v.meta is not new.meta:
                continue
            whole = room.nbytes == new.meta.span * new.meta.dtype.itemsize
            if whole and self._goes_along(unit, v, old):
                return room
        return None

    def _goes_along(self, unit: StepDraft, v: Value, old: Value) -> bool:
        """Whether a unit is done with each element of `old`, which it reads as `v`, when it writes
        that of its result."""
        low = self.low
        for other in unit.reads:
            base, start = low.base.get(other, (other, 0))
            if base is old and (start or other.meta is not v.meta):
                return False
        if len(unit.nodes) == 1 and unit.nodes[0].op.qualified in low.over_operand:
            args = unit.nodes[0].args
            which = low.over_operand[unit.nodes[0].op.qualified]
            return [_reads_base(low, a, old) for a in args].count(True) == 1 and args[which] is v
        return _stays_at_its_index(low, unit)

    def _continues(self, at: int, unit: StepDraft) -> bool:
        """Whether a region can be put into the memory of the old value, which nobody needs."""
        old = unit.nodes[0].args[0]
        if old not in self.room_of or self.last.get(old, -1) > at:
            return False
        return not _reads_base(self.low, unit.nodes[0].args[1], old)

    def _place_rooms(self, more: list[Lifetime]) -> int:
        """Homes for all values that have none. Returns the bytes of the arena.

        The memory of a result is free until the unit that makes it.
        """
        made_at = {v: at for at, unit in enumerate(self.low.units) for v in unit.outputs}
        spares = [
            (k, Spare(v.meta.span * v.meta.dtype.itemsize, made_at[v]))
            for k, v in enumerate(self.graph.outputs)
            if self.home.get(v) == (RESULT, k, 0) and v in made_at
        ]
        arena = plan([*self.rooms, *more], [spare for _, spare in spares])
        for v, room in self.room_of.items():
            which, offset = room.home
            self.home[v] = (ARENA, 0, offset) if which < 0 else (RESULT, spares[which][0], offset)
        return arena

    def place(self, v: Value, meta: TensorMeta | None = None, more: int = 0) -> Place:
        base, start = self.low.base.get(v, (v, 0))
        kind, index, offset = self.home[base]
        return Place(kind, index, offset + start + more, meta or v.meta)

    # ---- steps ---------------------------------------------------------------------------------

    def _emit(self, unit: StepDraft) -> None:
        node = unit.nodes[0]
        if len(unit.nodes) > 1:
            inputs = tuple(self._given(v) for v in unit.reads)
            outputs = tuple(self.place(v) for v in unit.outputs)
            self.steps.append(Step(self.low.graph_of(unit), inputs, outputs, origins(unit.nodes)))
        elif node.op is _PUT:
            self._emit_region(node)
        elif node.op is not _EMPTY:
            given = tuple(self._given(x) for x in flat_inputs(node.op, node.args))
            outputs = tuple(self.place(v) for v in node.outputs)
            self.steps.append(Step(self.low.graph_of(unit), given, outputs, origins([node])))

    def _given(self, x: Any) -> Any:
        if type(x) is not Value:
            return x
        return (
            self.place(x)
            if isinstance(x.meta, TensorMeta)
            else NumberArgument(self.numbers.index(x))
        )

    def _emit_region(self, node: Node) -> None:
        old, source, size, stride, offset = node.args
        new = node.outputs[0]
        if old in self.low.base or self.home[old] != self.home[new]:  # a view lives elsewhere
            self._copy(self.place(old), self.place(new), node)
        meta = new.meta.like(shape=tuple(size), strides=tuple(stride))
        target = self.place(new, meta, offset * meta.dtype.itemsize)
        if meta.numel:
            self._copy(self.place(source) if type(source) is Value else source, target, node)

    def _copy(self, source: Any, target: Place, node: Node | None = None) -> None:
        given = source.meta if isinstance(source, Place) else NUMBER_METAS[type(source)]
        graph = one_op_graph(_COPY, (target.meta, given), [target.meta])
        self.steps.append(Step(graph, (target, source), (target,), origins([node] if node else [])))

    def _rooms_to_save(self, updated: set[Value]) -> dict[Value, Lifetime]:
        """Rooms for inputs that are new values of others, and are about to be overwritten."""
        pending = [(t, v) for t, v in self.graph.writes if t not in updated]
        targets = {t for t, _ in pending}
        saved: dict[Value, Lifetime] = {}
        end = len(self.low.units)
        for _, v in pending:
            base = self.low._base(v)
            if base in targets and v not in saved:
                saved[v] = Lifetime(v.meta.span * v.meta.dtype.itemsize, end, end)
        return saved

    def _finish(self, updated: set[Value], rooms: dict[Value, Lifetime]) -> None:
        """Results and inputs that did not come to be in their places are copied there."""
        pending = [(t, v) for t, v in self.graph.writes if t not in updated]
        saved: dict[Value, Place] = {}
        for _, v in pending:
            if v in rooms and v not in saved:
                saved[v] = Place(ARENA, 0, rooms[v].home[1], v.meta)
                self._copy(self.place(v), saved[v])
        for k, v in enumerate(self.graph.outputs):
            if self.home.get(v) != (RESULT, k, 0) or v in self.low.base:
                self._copy(self.place(v), Place(RESULT, k, 0, v.meta), self.low.maker.get(v))
        for target, v in pending:
            self.written.add(self.home[target][1])
            if v is not target:
                self._copy(saved.get(v) or self.place(v), self.place(target), self.low.maker.get(v))


def origins(nodes: Sequence[Node]) -> tuple[Origin, ...]:
    """The user's lines that nodes come from, each once."""
    return tuple(dict.fromkeys(n.place for n in nodes if n.place is not None))


def _reads_base(low: Lowering, v: Any, base: Value) -> bool:
    return type(v) is Value and low._base(v) is base


def lower(
    graph: Graph,
    takes: Takes,
    fusion: Fusion | None = None,
    *,
    constants: Sequence[tuple[Value, Any]] = (),
    body: Body = no_body,
    over_operand: Mapping[str, int] = OVER_OPERAND,
    notes: Notes | None = None,
) -> Program:
    """The program of a graph without mutation.

    `takes` is the backend's word on groups, `fusion` says which to look for (None: none),
    `constants` are inputs whose bytes never change, `body` gives what stands for a composite,
    `over_operand` names the heavy ops whose result may be written over one of their operands,
    `notes` gets what was decided and why.
    """
    return Lowering(graph, takes, fusion, constants, body, over_operand, notes).program()
