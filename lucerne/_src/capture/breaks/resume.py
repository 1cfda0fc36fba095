"""Graph breaks: a function that can't be one graph becomes several, with Python in between.

The function runs in the bytecode machine (`bytecode`) on its real values. Where the first op comes,
a part begins: it is traced (`partial_graph`) until something that a graph can't hold, cut after its
last op, captured and compiled like any function, and from then on the machine jumps from the frames
at its beginning to the frames at its end. What lies between parts is executed by the machine as it
is, so whatever is not understood here is still right: it only is not faster.

A part is found again by where it begins (the instruction of each frame) and by what it has read
(`frame_reads.FrameGuard`). A loop that breaks at each turn comes to the same place again, and
finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lucerne._src.backends.contract.registry import NoBackendError
from lucerne._src.backends.contract.step_runner import StepError
from lucerne._src.base.config import config
from lucerne._src.base.raw import is_a
from lucerne._src.base.unspecialized import NumberUse
from lucerne._src.capture import faults, ledger
from lucerne._src.capture.breaks import debugger, reasons
from lucerne._src.capture.breaks.call_policy import decision_for, is_ours, user_place
from lucerne._src.capture.breaks.purity import apart
from lucerne._src.capture.breaks.reasons import Break, BreakError
from lucerne._src.capture.bytecode.frame import PythonFrame
from lucerne._src.capture.bytecode.hooks import INLINE, NATIVE, Decision, Plain, Stop
from lucerne._src.capture.bytecode.machine import Finished, Machine
from lucerne._src.capture.bytecode.targets import python_function, target_of
from lucerne._src.capture.cache.entry import MISSED, CacheEntry, Guards
from lucerne._src.capture.cache.lookup import Versions
from lucerne._src.capture.effects.journal import Written, replay, written
from lucerne._src.capture.effects.objects import Roots
from lucerne._src.capture.effects.rebuild import FrameNode, Node, ObjectBuilder, ObjectWriter
from lucerne._src.capture.effects.stores import StoreSnapshot
from lucerne._src.capture.guards import describe
from lucerne._src.capture.guards.frame_reads import FrameGuard, FrameReads
from lucerne._src.capture.guards.reachable import (
    ReachableState,
    is_module,
    is_optimizer,
    module_tables,
)
from lucerne._src.capture.guards.tensor_reads import TensorReads
from lucerne._src.capture.payoff.parts import Payoff
from lucerne._src.capture.symbolic.families import Families
from lucerne._src.capture.trace.callbacks import ApartError, BackwardCode
from lucerne._src.capture.trace.capture import Capture
from lucerne._src.capture.trace.captured import Captured
from lucerne._src.capture.trace.fake import CaptureError
from lucerne._src.capture.trace.input_sources import HELD
from lucerne._src.capture.trace.partial_graph import AgainError, Knowledge, PartialGraphTracer
from lucerne._src.capture.trace.pytree import flatten
from lucerne._src.ir import dispatch
from lucerne._src.loops.stages import Stages
from lucerne._src.tensor.autograd.graph import sees_each_op, wants_values_only
from lucerne._src.tensor.base import TensorBase
from lucerne._src.transforms.functionalize import MutationError

_state = dispatch.state
_BEGIN = "a part may begin here"
_COMPUTES = frozenset(
    (
        "BINARY_OP", "COMPARE_OP", "BINARY_SUBSCR", "STORE_SUBSCR", "BINARY_SLICE", "STORE_SLICE",
        "UNARY_NEGATIVE", "UNARY_INVERT", "UNARY_POSITIVE",
    )
)  # fmt: skip
"""Instructions that are ops if an operand is a tensor."""
_ASKED = "if, while, assert, and, or"
_FOLDS = (sum, max, min, abs, pow, divmod, round)
_MOST_TRACES = 24
"""How often one part is traced before it is left alone."""


@dataclass
class CodeStructure:
    """What a part leaves behind, but for tensors and plain values."""

    frames: list[FrameNode]
    result: Node | None
    """Of a part that ends with the function: what it returns."""
    effects: list[Written]


class Discovery(Capture):
    """A trace that only finds out how far a part goes and what it reads."""

    keeps_states = False

    def _read_off(self, result: Any, uses: list[NumberUse]) -> Captured:
        return None  # type: ignore[return-value]


class FunctionPart:
    """A part of a function from one place to another, with its compiled versions.

    Called with stand-ins for its tensors it runs the machine over that part, and returns the
    tensors and plain values that are left at its end.
    """

    backward_code = BackwardCode

    def __init__(self, fn: Any, plan: FrameGuard, steps: int, options: Any) -> None:
        self.part_of, self.plan, self.steps = fn, plan, steps
        self.known: Knowledge
        self.tensors: list[Any] = []
        self.objects: list[Any] = []
        self.looked: TensorReads | None = None
        """Set by who captures: gets what is asked about tensors."""
        self.structure: CodeStructure | None = None
        self.families = Families(self, options.whole, options.dynamic, options.tell)
        self.versions = Versions()
        self.entries: list[CacheEntry] = []
        self.broke: Break | None = None
        """What it ends at; None: at the end of the function."""

    def why(self, guards: Guards) -> tuple[str, str]:
        """For the ledger: what kind of compile this is, and its reason."""
        name = f"the part from line {self.known.frames[-1].line} on"
        if not self.entries:
            return ledger.PART, name
        names = guards.names or []
        found = self.entries[-1].guards.failure(self.tensors, guards.shape)
        return ledger.RECOMPILE, f"{name}: {describe.in_words(found or 'what it reads', names)}"

    def aim(self, known: Knowledge, tensors: list[Any], objects: list[Any]) -> None:
        """The frames that are traced next."""
        self.known, self.tensors, self.objects = known, tensors, objects

    def let_go(self) -> None:
        """Of the frames that were traced: they hold everything that the call worked with."""
        del self.known
        self.tensors, self.objects = [], []
        self.plan.let_go()

    def __call__(self, *given: Any) -> list[Any]:
        assert self.looked is not None
        tracer = PartialGraphTracer(self.known, lambda: 0, self.looked)
        try:
            stand_ins = {id(t): s for t, s in zip(self.tensors, given, strict=True)}
            unread = {
                (i, j)
                for i, f in enumerate(self.known.frames)
                for j in range(len(f.slots))
                if (i, j) not in self.plan.reads.slots
            }
            tracer.start(stand_ins, unread)
            tracer.go(self.steps)
            if tracer.escaped is not None:
                raise tracer.escaped
            if tracer.steps != self.steps:
                raise CaptureError("the part ends at another place")
            return self._left(tracer)
        finally:
            tracer.end()

    def _left(self, tracer: PartialGraphTracer) -> list[Any]:
        numbers: dict[int, int] = {}
        for k, x in enumerate(self.objects):
            numbers.setdefault(id(x), k)
        writer = ObjectWriter(numbers, tracer.birth.is_new)
        effects = [written(e, writer) for e in tracer.journal.effects]
        frames: list[FrameNode] = []
        result = None
        if tracer.finished is not None:
            result = writer.value(tracer.finished.value)
        else:
            frames = [writer.frame(f, tracer.given) for f in tracer.frames]
        found = CodeStructure(frames, result, effects)
        if self.structure is None:
            self.structure = found
        elif self.structure != found:
            raise CaptureError("the part leaves other things behind")
        return writer.leaves


class ResumePoint:
    """A place in the function where parts begin."""

    def __init__(self) -> None:
        self.parts: list[FunctionPart] = []
        self.refused: Break | None = None
        """Why no part begins here (or no further ones); the instruction runs as it is."""
        self.traces = 0

    @property
    def count(self) -> int:
        return sum(len(p.entries) for p in self.parts)


class Glue(Plain):
    """Between parts: everything as Python does it, but it stops where an op comes."""

    def __init__(self, frames: list[PythonFrame], segmented: ResumableFunction) -> None:
        self.frames, self.segmented = frames, segmented
        self.told = segmented.places

    def _tell(self, kind: str, name: Callable[[], str]) -> None:
        place = user_place(self.frames)
        at = None if place is None else (id(place[0]), place[1], kind)
        if at not in self.told:
            self.segmented.tell_break(reasons.made(kind, place, name()))
            self.told.add(at)

    def decide_call(
        self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Decision | Stop:
        """Enter user code; stop before ops."""
        try:
            return self._decided(fn, args)
        except Exception as error:  # the call is made as Python makes it
            self.segmented.fault_between(error)
            return NATIVE

    def _decided(self, fn: Any, args: Sequence[Any]) -> Decision | Stop:
        foreign = reasons.is_foreign(fn) and not is_ours(fn)
        if foreign:
            self._tell(reasons.kind_of_call(fn), lambda: reasons.name_of(fn))
        elif decision_for(fn) is INLINE:
            return INLINE
        elif is_ours(fn) and not is_a(fn, type):
            owner = getattr(fn, "__self__", None)
            counts = is_a(owner, TensorBase) or is_module(fn) or is_optimizer(owner)
            if counts or owner is None or is_a(owner, type) or is_module(owner):
                return Stop(_BEGIN)
        elif is_a(fn, Hashable) and fn in _FOLDS and _has_tensors(args):
            return Stop(_BEGIN)
        return NATIVE

    def before_branch(self, value: Any) -> Stop | None:
        if is_a(value, TensorBase):
            try:
                self._tell("branch", lambda: _ASKED)
            except Exception as error:
                self.segmented.fault_between(error)
        return None


_BEGINS = Stop(_BEGIN)


def _comes_to_an_op(frame: PythonFrame) -> Stop | None:
    """Whether the next instruction computes with tensors."""
    if frame.decoded.ops[frame.ip].name in _COMPUTES and _has_tensors(frame.stack[-4:]):
        return _BEGINS
    return None


def _has_tensors(args: Sequence[Any]) -> bool:
    for x in args:
        if is_a(x, TensorBase):
            return True
        if is_a(x, (list, tuple)) and any(is_a(v, TensorBase) for v in x):
            return True
    return False


class ResumableFunction:
    """A function that runs in parts."""

    def __init__(self, fn: Any, compiled: Any) -> None:
        """`compiled`: has `options`, gets `breaks` and `entries`."""
        self.fn, self.compiled, self.options = fn, compiled, compiled.options
        self.points: dict[Any, ResumePoint] = {}
        self.volatile: set[Any] = set()
        """Places whose content the function itself changes at each call."""
        self.told: dict[Any, Any] = {}
        """What deferred calls were told when they were first traced."""
        self.refused = ""
        """Why the machine can't run the function."""
        self.attempts = 0
        """How often a part was traced."""
        self.payoff = Payoff(compiled, self)
        self._kept: list[Any] = []
        self.places: set[Any] = set()
        """Where breaks were told of already, so that most calls don't make the texts."""
        self._faults: list[tuple[ResumePoint | None, Exception]] = []
        """Parts that could not be made in the call that goes on, for a reason that is ours or the
        function's own: which, is known at its end."""

    def guards(self) -> list[str]:
        """The text of the check of each part, in the order in which they were found."""
        return [part.plan.source for point in self.points.values() for part in point.parts]

    def is_possible(self) -> bool:
        """Whether the machine knows the code of the function; `refused` says why not."""
        function = python_function(self.fn)
        if function is None:
            self.refused = "there is no Python function behind it"
        else:
            self.refused = Machine.supported(function.__code__) or ""
        return not self.refused

    def frames_of(self, args: Any, kwargs: Any) -> list[PythonFrame]:
        """The first frame of a call. Raises Stop if the machine does not know the code."""
        target = target_of(self.fn, args, kwargs)
        if target is None:
            raise Stop("there is no Python function behind it")
        return [Machine(Plain()).frame_of(target.fn, target.args, target.kwargs)]

    def run(self, frames: list[PythonFrame]) -> Any:
        """What the function returns; its frames run until they end."""
        machine = Machine(Glue(frames, self))
        mine, self._faults = self._faults, []
        try:
            found = self._run(frames, machine)
        except BaseException:
            for point, _ in self._faults:  # the function raises: that may have been it
                if point is not None:
                    point.refused = None
            raise
        else:
            for _, error in self._faults:
                faults.tell(self.compiled, error, faults.A_PART)
            return found
        finally:
            self._faults = mine
            # Generators that are left behind go on without us: nobody makes parts of them.
            machine.as_they_are = True

    def _run(self, frames: list[PythonFrame], machine: Machine) -> Any:
        outcome: Any = self._part(frames, machine)  # from the very beginning
        parts = 1
        while type(outcome) is not Finished:
            outcome = machine.run(frames, before=_comes_to_an_op)
            if type(outcome) is Finished:
                break
            found = None
            if outcome.stop.reason == _BEGIN and parts < config.most_breaks:
                found = self._part(frames, machine)
                parts += 1
            elif parts == config.most_breaks:
                parts += 1
                self._note(reasons.made("too many breaks", user_place(frames), str(parts - 1)))
            outcome = machine.execute(frames) if found is None else found
        return outcome.value

    # ---- one part ------------------------------------------------------------------------------

    def _part(self, frames: list[PythonFrame], machine: Machine) -> Any:
        """Run the part that begins here; None: there is none."""
        watched = _state.call_level or _state.kernel_level or (_state.special and sees_each_op())
        if watched and not wants_values_only():
            return None  # a mode that the function has entered wants to see its ops
        key = tuple([(id(f.code), f.ip, len(f.stack)) for f in frames])
        point = self.points.get(key)
        if point is None:
            point = self.points[key] = ResumePoint()
            self._kept.append([f.code for f in frames])
        before = None
        try:
            found = self._find(point, frames)
            if found is None and point.refused is None and not watched:
                before = faults.Before()
                with self.compiled.lock:
                    found = self._find(point, frames) or self._anew(point, frames)
        except Exception as error:
            self._fault(point, frames, error, before)
            return None
        if found is None:
            return None
        part, entry, leaves, objects = found
        structure = part.structure
        replayed = False
        try:
            if watched:
                out = self.compiled.late_part("finite.calls").part(entry, self.fn, leaves)
                if out is None:
                    return None
            else:
                out = entry.run_guarded(leaves, self._call, entry, leaves)
            if out is MISSED:
                return self._part(frames, machine)
            builder = ObjectBuilder(out, objects, frames, machine)
            replayed = bool(structure.effects)
            for effect in structure.effects:
                replay(effect, builder)
            return self._after(structure, builder, frames)
        except Exception as error:
            if replayed or not entry.is_repeatable(error):
                raise
            if not entry.captured.handled:  # (else the function is to see it, and goes on)
                self._fault(point, frames, error, None)
                point.parts.remove(part)
            return None

    @staticmethod
    def _call(entry: CacheEntry, leaves: list[Any]) -> Any:
        return (
            entry.run(leaves) if entry.shadow is None else entry.shadow(tuple(leaves), {}, leaves)
        )

    @staticmethod
    def _after(structure: CodeStructure, builder: ObjectBuilder, frames: list[PythonFrame]) -> Any:
        """The frames behind a part that has run, or what the function returns."""
        if structure.result is not None:
            return Finished(builder.value(structure.result))
        frames[:] = [builder.frame(f) for f in structure.frames]
        return frames

    def _fault(
        self, point: ResumePoint, frames: list[PythonFrame], error: Exception, before: Any
    ) -> None:
        """Finding, making or running a part has raised: its instructions run as Python."""
        if faults.goes_through(error) or (self.options.fullgraph and isinstance(error, BreakError)):
            raise error
        if before is not None:
            before.put_back()
        if self.options.fullgraph:
            raise CaptureError(f"compiling a part raised {faults.in_words(error)}") from error
        point.refused = reasons.made("internal error", user_place(frames), faults.in_words(error))
        self._faults.append((point, error))

    def fault_between(self, error: Exception) -> None:
        """Something between parts has raised that was not the function's own doing."""
        if faults.goes_through(error) or isinstance(error, BreakError):
            raise error
        self._faults.append((None, error))

    def _find(self, point: ResumePoint, frames: list[PythonFrame]) -> Any:
        for part in point.parts:
            leaves: list[Any] = []
            objects: list[Any] = []
            if part.plan.check(frames, leaves, objects) is not None:
                continue
            shape = flatten((tuple(leaves), {}), [])
            entry = part.versions.find(leaves, shape) or self._instance(part, leaves, shape)
            if entry is not None:
                return part, entry, leaves, objects
        return None

    def _instance(self, part: FunctionPart, leaves: list[Any], shape: Any) -> CacheEntry | None:
        """A version for sizes that were not traced."""
        with self.compiled.lock:
            try:
                making = self.compiled.late_part("cache.instances")
                entry: CacheEntry | None = making.of_part(
                    self.compiled, part.families, leaves, shape
                )
                if entry is None:
                    return None
            except (StepError, MutationError, CaptureError):
                return None
            except Exception as error:
                if faults.goes_through(error):
                    raise
                part.families.give_up()
                faults.tell(self.compiled, error, faults.NO_SIZES)
                return None
            entry.broke = part.broke
            part.versions.add_instance(leaves, entry)
            return entry

    def _note(self, found: Break) -> None:
        if not any(found == b for b in self.compiled.breaks):
            self.compiled.breaks.append(found)
            ledger.broke(self.fn, found)
            if (
                found.kind == debugger.KIND
            ):  # whoever is above it in the stack has a frame next time
                self.compiled.give_up(str(found))
        if found.kind == "generator state":
            # Who seeds expects the numbers of that seed: parts draw as eager does.
            self.options.disable |= {"count_draws"}

    # ---- a new part ----------------------------------------------------------------------------

    def _anew(self, point: ResumePoint, frames: list[PythonFrame]) -> Any:
        """Trace and compile the part that begins here; None: there is none, and why is noted."""
        if point.count >= config.most_captures:
            why = f"this part was compiled {point.count} times already, for other values"
            point.refused = reasons.made("too many versions", user_place(frames), why)
            self._note(point.refused)
            return None
        if any(f.generator is not None or f.handled is not None for f in frames):
            return None
        self.attempts += 1
        known = len(apart)
        try:
            return self._found_anew(point, frames)
        except ApartError as found:
            if len(apart) > known:  # the next trace ends where that code is handed over
                return self._anew(point, frames)
            point.refused = found.found.at(user_place(frames))
            self.tell_break(point.refused)
            return None

    def _found_anew(self, point: ResumePoint, frames: list[PythonFrame]) -> Any:
        try:
            known, tracer = self._discover(point, frames)
        except (CaptureError, MutationError) as found:
            point.refused = reasons.of_error(found, user_place(frames), "this part")
            self.tell_break(point.refused)
            return None
        if tracer is None:
            return None
        if tracer.suspect is not None:
            self._faults.append((None, tracer.suspect))
        if tracer.broke is not None:
            self.tell_break(tracer.broke)
        if not tracer.cut:
            point.refused = tracer.broke or reasons.made(
                "not captured", user_place(frames), "nothing is computed before Python goes on"
            )
            return None
        try:
            return self._compiled_up_to_one_of(tracer, point, known)
        except ApartError:
            raise
        except (CaptureError, MutationError) as error:
            point.refused = reasons.of_error(error, user_place(frames), "this part")
            self.tell_break(point.refused)
            return None
        finally:
            tracer.reads.let_go()

    def _compiled_up_to_one_of(
        self, tracer: PartialGraphTracer, point: ResumePoint, known: Knowledge
    ) -> Any:
        """The part that ends where the trace did or, if there is none, at an earlier place."""
        first: Exception | None = None
        for cut in (tracer.cut, *sorted(set(_earlier(tracer.cuts, tracer.cut)), reverse=True)):
            try:
                return self._compiled(point, known, tracer, cut)
            except ApartError:
                raise
            except (CaptureError, MutationError) as error:
                first = first or error
        assert first is not None
        raise first

    def tell_break(self, found: Break) -> None:
        """A break was found: it is noted, or (`fullgraph`) an error."""
        if found.kind == "iterator" and found.reason.startswith("the loop"):
            return  # of our own making: a loop that began before the part
        if self.options.fullgraph and found.kind not in ("changing value", "write"):
            raise BreakError(found)
        self._note(found)

    def _discover(self, point: ResumePoint, frames: list[PythonFrame]) -> tuple[Any, Any]:
        """How far a part goes that begins here, and what it reads."""
        reach = ReachableState(self.fn, ())
        first = Roots(frames, {*reach.seen, *(id(t.store) for t in reach.tables)})
        more: list[Any] = []
        while point.traces < _MOST_TRACES:
            point.traces += 1
            reach = ReachableState(self.fn, first.fixed)
            known = Knowledge(frames, reach, self.volatile, self.told)
            known.more = more
            reach.tensors = {k: t for k, t in reach.tensors.items() if known.is_held(t)}
            tracer = self._traced(known)
            if is_a(tracer.escaped, AgainError):
                continue
            return known, tracer
        point.refused = reasons.made(
            "not captured", user_place(frames), "each trace of this part finds something else"
        )
        return None, None

    def _traced(self, known: Knowledge) -> PartialGraphTracer:
        tensors = [t for t in [*known.roots.tensors, *known.more] if not known.is_held(t)]
        tracers: list[PartialGraphTracer] = []

        def look(*given: Any) -> None:
            found = discovery.tracing.looked
            tracer = PartialGraphTracer(known, lambda: len(discovery.recorder.graph.nodes), found)
            tracers.append(tracer)
            try:
                tracer.start({id(t): s for t, s in zip(tensors, given, strict=True)}, None)
                tracer.go(None)
            finally:
                tracer.end()
            if tracer.escaped is not None and not is_a(tracer.escaped, AgainError):
                raise tracer.escaped

        discovery = Discovery(look, tuple(tensors), {}, known.reach, self.options.whole)
        discovery.run()
        return tracers[-1]

    def _compiled(
        self, point: ResumePoint, known: Knowledge, tracer: PartialGraphTracer, cut: int
    ) -> Any:
        tracer.end_at(cut)
        plan = FrameGuard(tracer.reads, known.frames, known.is_held)
        leaves: list[Any] = []
        objects: list[Any] = []
        why = plan.failure(known.frames, leaves, objects)
        if why is not None:
            raise CaptureError(f"what the part reads changes while it is traced: {why}")
        part = next(
            (p for p in point.parts if p.plan.key == plan.key and p.steps == cut), None
        ) or FunctionPart(self.fn, plan, cut, self.options)
        part.broke, part.plan.reads.facts = tracer.broke, tracer.facts
        part.aim(known, leaves, objects)
        try:
            entry = self._entry(part, known, leaves)
        finally:
            part.let_go()
        entry.broke = tracer.broke
        if part not in point.parts:
            point.parts.append(part)
        part.entries.append(entry)
        self.compiled.entries.append(entry)
        return part, entry, leaves, objects

    def _entry(self, part: FunctionPart, known: Knowledge, leaves: list[Any]) -> CacheEntry:
        shape = flatten((tuple(leaves), {}), [])
        reach, reads = known.reach, part.plan.reads
        stages = Stages()
        while True:
            with stages.timed("capture"):
                captured = part.families.capture(tuple(leaves), {}, leaves, shape, reach)
            stages.nodes["capture"] = len(captured.graph.nodes)
            _check_held(captured, known, reads)
            _only_what_was_read(reach, reads, part)
            guards = Guards(leaves, shape, captured, reach)
            guards.names, guards.more = part.plan.names, part.plan.reasons
            try:
                entry: CacheEntry = self.compiled.build(captured, guards, stages, *part.why(guards))
            except StepError as error:
                if error.graph is None or not self.options.whole.refuse(error.graph):
                    raise CaptureError(str(error)) from error
                continue
            except NoBackendError as error:
                raise CaptureError(str(error)) from error
            part.versions.add(leaves, entry)
            with faults.costs(self.compiled, faults.NO_SIZES):
                part.families.learn(captured, guards, leaves)
            with faults.costs(self.compiled, faults.NO_NOTE):
                self.compiled.watch(entry, part=True)
            return entry


def _earlier(cuts: list[int], cut: int) -> list[int]:
    """Two places before the last one where a part could end as well."""
    before = [c for c in cuts if c < cut]
    return [before[len(before) // 2], before[0]] if before else []


def _check_held(captured: Captured, known: Knowledge, reads: FrameReads) -> None:
    """Every tensor that is taken to be the same object at each call must be known to be."""
    listed = {id(x) for c in reads.contents.values() for x in (c.values() if is_a(c, dict) else c)}
    for source in captured.sources:
        known_place = known.is_held(source.thing) or id(source.thing) in listed
        if source.kind == HELD and not known_place:
            raise CaptureError("the part reads a tensor that it finds in an unknown place")


def _only_what_was_read(reach: ReachableState, reads: FrameReads, part: FunctionPart) -> None:
    """Drop what guards would watch though nobody looked at it."""
    stores = {id(t.store): t for t in reach.tables}
    unknown = reads.contents.keys() - stores.keys()
    owners = module_tables(reach.modules.values()) if unknown else {}
    for at in unknown - reads.engine.keys():
        if at in owners:
            reads.modules[id(owners[at])] = None  # children and hooks: all of the module counts
        else:  # in a class, or behind a function of another file: who holds it is compared
            store = reads.contents[at]
            name = type(store).__name__
            reach.more.append(StoreSnapshot(name, store, is_attributes=False, watched=True))
    reach.engine = sorted(reads.engine[at] for at in unknown & reads.engine.keys())
    if reads.everything:
        reach.whole_because = reads.everything
    else:
        reach.links.clear()
        for table in reach.tables:
            table.watched = id(table.store) in reads.contents
        reach.modules = {at: m for at, m in reach.modules.items() if at in reads.modules}
        reach.read_modules = {
            at: None if names is None else frozenset(names) for at, names in reads.modules.items()
        }
    if reads.facts is not None:
        reach.places = reads.facts.held()
    structure = part.structure
    assert structure is not None
    for how, target, key, _ in structure.effects:
        if target[0] == "same" and is_module(target[1].value) and how.value == "attribute":
            found = stores.get(id(target[1].value.__dict__))
            if found is not None:
                reach.loose[id(found)] = reach.loose.get(id(found), frozenset()) | {key}
    reach.refresh()
