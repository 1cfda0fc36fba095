"""Making a version of a compiled function: from a call, by a capture, to a program.

`compiled` loads this module when it meets a call that no version fits and no stored program does:
tracing, passes and shadow mode are most of the package, and a process that finds its programs on
disk needs none of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lucerne._src import backends
from lucerne._src.backends.contract.backend import Runner
from lucerne._src.backends.contract.fallback import brought
from lucerne._src.base.config import config
from lucerne._src.base.device import device as Device
from lucerne._src.base.process.error_notes import hide_frames
from lucerne._src.base.process.garbage import Unhurried
from lucerne._src.base.process.source_location import place_of_error
from lucerne._src.base.raw import is_a
from lucerne._src.base.unspecialized_ints import GivenInt
from lucerne._src.capture import faults, ledger
from lucerne._src.capture.aot.backward import Joint
from lucerne._src.capture.aot.pruned_backward import PrunedBackward
from lucerne._src.capture.aot.split import ForwardBackward, constants_of, halves_of
from lucerne._src.capture.breaks import debugger, reasons
from lucerne._src.capture.breaks.reasons import BreakError
from lucerne._src.capture.breaks.resume import ResumableFunction
from lucerne._src.capture.cache.disk import graph_programs
from lucerne._src.capture.cache.disk.lookup import Lookup
from lucerne._src.capture.cache.entry import CacheEntry, Guards
from lucerne._src.capture.cache.launch import PythonLaunch
from lucerne._src.capture.effects import new_objects
from lucerne._src.capture.effects.objects import is_iterator
from lucerne._src.capture.guards.prune import narrow
from lucerne._src.capture.guards.reachable import ReachableState
from lucerne._src.capture.options import Options
from lucerne._src.capture.road import road_of
from lucerne._src.capture.staged.entry import StagedBuilding
from lucerne._src.capture.symbolic import counters
from lucerne._src.capture.symbolic import scalars as given
from lucerne._src.capture.symbolic.counters import CounterError
from lucerne._src.capture.symbolic.families import Families
from lucerne._src.capture.trace.capture import Capture
from lucerne._src.capture.trace.captured import Captured
from lucerne._src.capture.trace.fake import CaptureError, NotYetError
from lucerne._src.capture.trace.full_graph import FullGraphTracer
from lucerne._src.capture.trace.input_sources import CONSTANT, KEY, NUMBER, TANGENT, InputSource
from lucerne._src.capture.trace.pytree import rebuild
from lucerne._src.ir.graph import Graph, Value
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.loops.stages import Stages
from lucerne._src.pipeline.passes import PASSES
from lucerne._src.tensor.random.api import default_generator
from lucerne._src.transforms.absent import sums_of
from lucerne._src.transforms.functionalize import MutationError
from lucerne._src.transforms.one_device import on_one_device
from lucerne._src.transforms.partition import OUTPUT

_STAGES = frozenset(("count_draws", "fuse", "anchors"))
"""What can be left out besides passes."""


def families_of(fn: Any, options: Options) -> Families:
    """What is known about a function's captures for all sizes: nothing yet."""
    return Families(FullGraphTracer(fn), options.whole, options.dynamic, options.tell)


def check_disabled(off: frozenset[str]) -> None:
    """Raise if something is to be left out that is not there."""
    known = {p.name for p in PASSES} | _STAGES
    unknown = sorted(off - known)
    if unknown:
        listed = ", ".join(sorted(known))
        raise ValueError(
            f"compile: there is no pass {', '.join(unknown)} to disable, only {listed}"
        )


def devices_of(values: Iterable[Value]) -> set[str]:
    return {v.meta.device.type for v in values if is_a(v.meta, TensorMeta)}


def backend_of(graph: Graph, options: Options) -> str:
    """Who runs a graph: what `compile` was told, or the device that its tensors are on. (Tensors of
    the host that are not results may be among them: see `Bridge`.)"""
    found = devices_of([*graph.inputs, *(v for n in graph.nodes for v in n.outputs)])
    apart = found - {backends.HOST}
    mixed = len(found) > 1
    if len(apart) > 1 or (mixed and backends.HOST in devices_of(graph.outputs)):
        raise CaptureError(f"its tensors are on several devices: {', '.join(sorted(found))}")
    if mixed and any(type(a) is Graph for n in graph.nodes for a in n.args):
        raise CaptureError("control flow on tensors of several devices")
    return apart.pop() if apart and options.follows else options.backend


class Bridge(Runner):
    """Runs a program of one device for arguments that are partly on the host: those are brought
    there, and brought back where they were written."""

    def __init__(self, runner: Any, far: list[int], written: Iterable[int], target: Any) -> None:
        self.runner, self.far, self.target = runner, far, target
        self.back = [k for k in far if k in set(written)]

    def __call__(self, arguments: Any, numbers: Any, results: Any) -> None:
        given = list(arguments)
        for k in self.far:
            given[k] = brought(given[k], self.target)
        self.runner(given, numbers, results)
        backend = backends.get(self.target.type)
        for k in self.back:
            t, held = arguments[k], given[k]._storage
            data = backends.on_host(backend, held.buffer)[: held.nbytes]
            t._storage.write(t._offset * t._meta.dtype.itemsize, data)


def made(compiled: Any, asked: Lookup, args: Any, kwargs: Any) -> CacheEntry:
    """A new version, captured from this call; with numbers that are given at each call, where
    nothing but a number has changed."""
    alike = compiled.versions.alike(asked.leaves)
    refused = compiled.by_value
    earlier, places = given.changed(alike, asked.leaves, asked.shape, refused)
    outside: list[Any] = []
    if earlier is None and not any(f.sized for f in compiled.families.members):
        earlier, outside = counters.changed(alike, asked.shape, refused)
        places = [] if earlier is None else [k for k, *_ in earlier.guards.given]
    if earlier is not None and compiled.number_attempts and not asked.options.shadow:
        try:
            return _with_numbers(compiled, asked, earlier, places, outside)
        except Exception as error:  # here they are a part of the program
            compiled.number_attempts -= 1
            compiled.options.tell.perhaps(error, faults.NO_NUMBERS)
    try:
        return _captured(compiled, asked, args, kwargs)
    except CounterError as found:
        return _counting(compiled, asked, found)


def _with_numbers(
    compiled: Any, asked: Lookup, earlier: CacheEntry, places: list[int], outside: list[Any]
) -> CacheEntry:
    """A version for any numbers in these leaves and places outside."""
    tried = Numbered(compiled, asked, places, outside, [p.now() for p in outside])
    then = {f"argument {k}": x for k, x in earlier.guards.values if k in places}
    then |= {name: tried.holder[name] for _, _, name, _ in earlier.guards.given}
    then |= {f"number {k}": p.value for k, p in enumerate(outside)}
    if not given.agrees(tried.captured, earlier.captured, tried.holder, then):
        raise CaptureError("the graph depends on the number")
    return tried.entry()


def _counting(compiled: Any, asked: Lookup, found: CounterError) -> CacheEntry:
    """A version of a function that changes a number outside, `self.step += 1`."""
    outside: list[Any] = []
    broken = reasons.made("write", place_of_error(found), found.shown)
    while asked.options.shadow <= 0 and len(compiled.entries) < counters.MOST_VERSIONS:
        outside.append(found.place)
        try:
            return _counted(compiled, asked, outside)
        except CounterError as more:
            found = more
            if len(outside) == counters.MOST_COUNTERS:
                break
        except Exception as error:  # it runs in parts
            compiled.options.tell.perhaps(error, faults.NO_NUMBERS)
            break
    raise BreakError(broken)


def _counted(compiled: Any, asked: Lookup, outside: list[Any]) -> CacheEntry:
    now = [p.now() for p in outside]
    tried = Numbered(compiled, asked, [], outside, now)
    values = counters.others(now, tried.holder, tried.captured.uses)
    if values is None:  # it is for these numbers only, as far as anybody can tell
        if all(type(v) is int for v in now):  # (nobody takes those by value without telling)
            return tried.entry()
        raise CaptureError("nobody can tell whether the graph depends on the number")
    other = Numbered(compiled, asked, [], outside, values)
    with tried.holder.with_values(other.holder.values):
        same = counters.same_counts(tried.captured.counted, other.captured.counted)
    if not same or not given.agrees(
        tried.captured, other.captured, tried.holder, other.holder.values
    ):
        raise CaptureError("the graph depends on the number")
    return tried.entry()


class Numbered:
    """A capture with numbers that are given at each call: leaves (by their numbers), and places
    outside of the arguments (with the values that are there, or others to try)."""

    def __init__(
        self, compiled: Any, asked: Lookup, places: list[int], outside: list[Any], values: list[Any]
    ) -> None:
        self.compiled, self.shape, self.stages = compiled, asked.shape, Stages()
        self.holder, self.leaves = given.with_numbers(asked.leaves, places)
        args, kwargs = rebuild(self.shape, iter(self.leaves))
        through = FullGraphTracer(compiled.fn)
        self.reach = ReachableState(compiled.fn, self.leaves)
        if not through.is_possible:
            raise CaptureError("what it does with a number can't be seen")
        through.numbers = counters.counted(outside, self.holder, values)
        self.numbers = list(through.numbers.values())
        with self.stages.timed("capture"):
            whole = compiled.options.whole
            self.captured = Capture(through, args, kwargs, self.reach, whole).run()
        leaves = self.leaves
        decides = {k for k in places if type(leaves[k]) is GivenInt and leaves[k].used_by_value}
        by_value = {p.at for p in self.numbers if getattr(p.given, "used_by_value", False)}
        compiled.by_value |= decides | by_value
        if decides or by_value:
            raise CaptureError("an integer decides what is done")

    def entry(self) -> CacheEntry:
        reach = self.reach
        narrow(reach, self.captured)
        reach.numbers = self.numbers
        reach.refresh()
        counters.check_free(reach, self.numbers)
        guards = Guards(self.leaves, self.shape, self.captured, reach)
        return Building(self.captured, guards, self.compiled.options, self.stages).entry()


def _captured(compiled: Any, asked: Lookup, args: Any, kwargs: Any) -> CacheEntry:
    stages, leaves, shape = Stages(), asked.leaves, asked.shape
    with stages.timed("reach"):
        reach = ReachableState(compiled.fn, leaves)
    if any(hasattr(m, "_initialize_hook") for m in reach.modules.values()):
        raise NotYetError("a lazy module gets its parameters by a first call")
    if not compiled.options.fullgraph and any(map(is_iterator, leaves)):
        raise CaptureError("an iterator is among the arguments: capturing would use it up")
    with stages.timed("capture"), asked.watching():
        captured = compiled.families.capture(args, kwargs, leaves, shape, reach)
    stages.nodes["capture"] = len(captured.graph.nodes)
    with stages.timed("reach"):
        narrow(reach, captured)
        reach.refresh()
        guards = Guards(leaves, shape, captured, reach)
    if captured.unbacked is not None:
        return _staged(compiled, captured, guards, stages)
    with Unhurried(new_objects.count):  # what is made now stays
        building = Building(captured, guards, compiled.options, stages)
        entry = building.entry()
        asked.keep(entry)
        if asked.is_refused:
            building.keep_graphs()
    compiled.files = asked.files
    return entry


def _staged(compiled: Any, captured: Captured, guards: Guards, stages: Stages) -> CacheEntry:
    """A version with sizes that depend on the data. What is stored of it are its stages."""
    unkept: list[graph_programs.GraphLookup] = []
    options = compiled.options
    entry = StagedBuilding(
        captured, guards, options, stages,
        lambda graph, stages: compiled_half(options, graph, {}, stages, unkept),
    ).entry()  # fmt: skip
    for asked in unkept:
        asked.keep()
    return entry


def part(
    compiled: Any, captured: Captured, guards: Guards, stages: Stages, kind: str, why: str
) -> CacheEntry:
    """A version of a part of the function; `kind` and `why` are for the ledger."""
    with ledger.compiling(compiled.fn, kind, why) as row:
        building = Building(captured, guards, compiled.options, stages)
        entry = building.entry()
        building.keep_graphs()
        noted(row, compiled, entry)
    return entry


def noted(row: ledger.LedgerRow, compiled: Any, entry: CacheEntry) -> None:
    """`note`, which may fail."""
    with faults.costs(compiled, faults.NO_NOTE):
        note(row, compiled, entry)


def note(row: ledger.LedgerRow, compiled: Any, entry: CacheEntry) -> None:
    """Enter a compile into the ledger, and dump it where somebody asked for that."""
    ledger.note(row, compiled, entry)
    folder = compiled.options.dump or config.dump
    if folder:
        compiled.late_part("report.dump").dump(
            Path(folder), compiled.fn, entry, compiled.options, row
        )


def failed(compiled: Any, error: Exception) -> Exception | None:
    """Capturing has raised. None: the call is to run in parts or as it is, and why has been said;
    an error: what `as_it_is` is to be told."""
    if isinstance(error, CaptureError | MutationError):
        _break(compiled, error)
        return None
    if isinstance(error, backends.NoBackendError) and not compiled.options.fullgraph:
        compiled.give_up(str(error))
        return None
    return None if isinstance(error, NotYetError) else error


_PARTS_HOLD = ("write", "changing value", "print", "logging")
"""Breaks of a whole function that a part may hold, as side effects."""


def _break(compiled: Any, error: Exception) -> None:
    """It can't be one graph: from now on it runs in parts, if the machine knows its code."""
    found = reasons.of_error(error, place_of_error(error))
    made = ResumableFunction(compiled.fn, compiled)
    handled = made.is_possible() and found.kind in _PARTS_HOLD
    if compiled.options.fullgraph and not handled:
        raise BreakError(found) from error
    if not handled:
        compiled.breaks.append(found)
        ledger.broke(compiled.fn, found)
    if made.refused or found.kind == debugger.KIND or debugger.stops_inside(compiled.fn):
        compiled.give_up(str(found))
    else:
        compiled.segmented = made


def as_it_is(
    compiled: Any, args: Any, kwargs: Any, error: Exception, entry: CacheEntry | None = None
) -> Any:
    """If the function itself raises, that is what its caller sees (with what it had written until
    then); else the fault is ours, unless the function handles errors of the `entry` that raised.
    """
    try:
        result = compiled.fn(*args, **kwargs)
    except Exception as raised:
        if raised.__context__ is error:  # the same, from the program: it says nothing more
            raised.__context__ = error.__context__
        hide_frames(raised)
        raise
    if entry is not None and entry.captured.handled:
        return result
    why = f"capturing or compiling it raised {faults.in_words(error)}"
    if compiled.options.fullgraph:
        raise CaptureError(why) from error
    compiled.given_up = why
    faults.tell(compiled, error, faults.UNCOMPILED)
    return result


def in_parts(compiled: Any, args: Any, kwargs: Any) -> Any:
    """A call that no version fits."""
    try:
        return compiled.segmented.payoff(args, kwargs)
    except Exception as error:
        hide_frames(error)
        raise


def watch(compiled: Any, entry: CacheEntry, *, part: bool = False) -> None:
    """Shadow mode: the first calls of a version (of the function, or of a part of it) are
    compared with what it should do."""
    options = compiled.options
    if options.shadow <= 0 or options.maker is not None or entry.guards.wrapped is not None:
        return  # (evidence is kept of plain tensors only)
    told = entry, options, compiled.fn, options.shadow, options.shadow_action
    late = compiled.late_part("shadow.shadowing")
    entry.shadow = late.PartShadow(*told, compiled.give_up) if part else late.Shadow(*told)
    entry.shadow.tell = lambda error: faults.tell(compiled, error, faults.NO_NOTE)


class Building:
    """From a captured call to an entry."""

    def __init__(
        self, captured: Captured, guards: Guards, options: Options, stages: Stages | None = None
    ) -> None:
        self.captured, self.guards, self.options = captured, guards, options
        self.stages = Stages() if stages is None else stages
        self.road = road_of(options, self.stages)
        self.graph = self.road.functional(captured.graph, captured.roots, captured.fresh)
        self.key: list[InputSource] = []
        if options.counts_draws:
            self.graph, key = self.road.counted(self.graph, default_generator)
            self.key = [] if key is None else [InputSource(KEY, thing=key.meta.device)]
        self.sources = [*captured.sources, *self.key]
        self._unkept: list[graph_programs.GraphLookup] = []

    def keep_graphs(self) -> None:
        """Store its programs by their graphs: the function as a whole is not stored."""
        for asked in self._unkept:
            asked.keep()

    def entry(self) -> CacheEntry:
        captured = self.captured
        if captured.gradients:
            return self._differentiable()
        constants = constants_of(self.sources)
        runner, program = self._compiled(self.graph, constants, self.stages)
        return self._entry(runner, program)

    def _compiled(self, graph: Graph, constants: dict[int, Any], stages: Stages) -> tuple[Any, Any]:
        return compiled_half(self.options, graph, constants, stages, self._unkept)

    def _entry(self, runner: Any, program: Any) -> CacheEntry:
        if self.captured.handled and program.written:
            # The handler would see half of a call: what is written stays written.
            raise CaptureError(
                "an op that may raise for its values stands in a `try` or `with` of a function "
                "that writes to tensors"
            )
        return CacheEntry(
            self.captured, self.guards, runner, program.results, sorted(program.written),
            self.stages, self.key,
        )  # fmt: skip

    def halves(self) -> tuple[ForwardBackward, list[Value]]:
        """The joint graph in two, and its tangents."""
        captured = self.captured
        joint = self.road.improved(self.graph)
        tangents = [v for v, s in zip(joint.inputs, self.sources, strict=True) if s.kind == TANGENT]
        return halves_of(self.road, joint, captured, self.sources, self.options.budget), tangents

    def _differentiable(self) -> CacheEntry:
        """Two programs: the call, and the backward pass that somebody may run later."""
        halves, tangents = self.halves()
        runner, program = self._compiled(halves.forward, halves.constants, self.stages)
        entry = self._entry(runner, program)
        entry.joint = made = self._backward(halves, tangents)
        made.tell = self.options.tell
        if len(tangents) > 1 or len(made.gradients) > 1:
            graph, constants = halves.backward, halves.saved_constants
            made.make_lean = PrunedBackward(
                made, graph, sums_of(graph), constants, self._compiled, self.options.tell
            )
        return entry

    def _backward(self, halves: ForwardBackward, tangents: list[Value]) -> Joint:
        stages = Stages()
        runner, program = self._compiled(halves.backward, halves.saved_constants, stages)
        return self.joint(halves, tangents, runner, program.results, stages)

    def joint(
        self,
        halves: ForwardBackward,
        tangents: list[Value],
        runner: Any,
        results: Sequence[TensorMeta],
        stages: Stages,
    ) -> Joint:
        """How the backward pass is run."""
        saved: list[tuple[bool, int]] = []
        numbers: list[Any] = []
        kept_at = (k for k, s in enumerate(halves.primals) if s.kind not in (CONSTANT, NUMBER))
        place = {k: at for at, k in enumerate(kept_at)}
        for kept in halves.saved:
            if kept.kind == OUTPUT:
                saved.append((False, kept.index))
            elif kept.index in place:
                saved.append((True, place[kept.index]))
            elif halves.primals[kept.index].kind == NUMBER:
                numbers.append(halves.primals[kept.index].thing)
        return Joint(
            runner, saved, [t.meta for t in tangents], list(results), self.captured.gradients,
            self.captured.wanted, stages, halves.report, numbers, self.captured.backward_uses,
        )  # fmt: skip


def compiled_half(
    options: Options,
    graph: Graph,
    constants: dict[int, Any],
    stages: Stages,
    unkept: list[graph_programs.GraphLookup] | None = None,
) -> tuple[Any, Any]:
    """What runs a graph without mutation, and its program. `unkept`: gets who stores it; None: it
    is not looked for on disk."""
    if options.maker is not None:
        graph = road_of(options, stages).improved(graph)
        return options.maker(graph, constants), Ends(graph, constants)
    name = backend_of(graph, options)
    far: list[int] = []
    if name != backends.HOST and backends.HOST in devices_of(graph.inputs):
        given = [
            v.meta.device.type
            for k, v in enumerate(graph.inputs)
            if is_a(v.meta, TensorMeta) and k not in constants
        ]
        far = [k for k, where in enumerate(given) if where == backends.HOST]
        graph = on_one_device(graph, Device(name))
        constants = {k: t.to(name) for k, t in constants.items()}
    runner = None
    if unkept is not None:
        unkept.append(graph_programs.GraphLookup(graph, constants, name, options, stages))
        runner = unkept[-1].runner
    if runner is None:
        runner = road_of(options, stages, backend=name).compiled(graph, constants)
    program: Any = stages.program
    if far:
        runner = Bridge(runner, far, program.written, Device(name))
    elif runner.launch is None:
        runner = PythonLaunch(runner, program)
    return runner, program


class Ends:
    """What is to be known of a graph that no program was made of: its results, its writes."""

    def __init__(self, graph: Graph, constants: dict[int, Any]) -> None:
        self.results = [v.meta for v in graph.outputs]
        given = [
            v.index
            for k, v in enumerate(graph.inputs)
            if k not in constants and is_a(v.meta, TensorMeta)
        ]
        self.written = [given.index(target.index) for target, _ in graph.writes]
