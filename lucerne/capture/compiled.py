"""`compile`: a function that is captured at its first call and runs as one program afterwards."""

from __future__ import annotations

import copy
import functools
import threading
import types
import weakref
from collections.abc import Callable
from time import perf_counter
from typing import Any

from lucerne import backends
from lucerne.backends.steps import StepError
from lucerne.base import notices
from lucerne.base.config import config
from lucerne.base.where import Place, describe, is_users
from lucerne.capture import breaks, dump, ledger, words
from lucerne.capture.backward import Halves, Joint, constants_of, halves_of
from lucerne.capture.breaks import Break, BreakError
from lucerne.capture.bytecode.hooks import Stop
from lucerne.capture.entry import MISSED, Entry, Guards
from lucerne.capture.fake import CaptureError, NotYetError
from lucerne.capture.families import Families
from lucerne.capture.reach import Reach
from lucerne.capture.segments import Segmented
from lucerne.capture.shadow.shadowing import ACTIONS, PartShadow, Shadow
from lucerne.capture.stored.store import HIT, Asked
from lucerne.capture.through import Through
from lucerne.capture.trace import CONSTANT, KEY, NUMBER, TANGENT, Captured, Source
from lucerne.capture.tree import flatten
from lucerne.capture.versions import Versions
from lucerne.capture.whole import Composites
from lucerne.ir import dispatch
from lucerne.ir.graph import Graph, Value
from lucerne.ir.meta import TensorMeta
from lucerne.loops.stages import Stages
from lucerne.pipeline import PASSES, Setting, compile_graph, during, improve, verified
from lucerne.tensor.random_api import default_generator
from lucerne.transforms.functionalize import MutationError, functionalize
from lucerne.transforms.partition import OUTPUT
from lucerne.transforms.random import count_draws

_state = dispatch.state
_one_at_a_time = threading.RLock()
"""While a function is captured, gradients of parameters are looked at and put back."""


_MODES = (
    None, "default", "bitwise", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs",
)  # fmt: skip
"""PyTorch's modes mean nothing here: a program is one call, kernels are chosen by their sizes."""
_STAGES = frozenset(("count_draws", "fuse", "heads"))
"""What can be left out besides passes."""

ALL: weakref.WeakSet[Compiled] = weakref.WeakSet()


class Compiled:
    """A function with its compiled versions."""

    def __init__(self, fn: Any, options: Options) -> None:
        self.fn, self.options = fn, options
        self.entries: list[Entry] = []
        self.versions = Versions()
        self.families = Families(Through(fn), options.whole, options.dynamic)
        self.files: list[tuple[str, str]] | None = None
        """The files of code that ran while it was captured; None: not known."""
        self.given_up: str | None = None
        self.breaks: list[Break] = []
        """Where it could not be one graph, each place once."""
        self.segmented: Segmented | None = None
        """How it runs in parts, if it can't be one graph."""
        self.lock = _one_at_a_time
        self.latest: Entry | None = None
        functools.update_wrapper(self, fn, updated=())
        ALL.add(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        latest = self.latest
        seen = _state.call_level or _state.kernel_level
        if latest is not None and latest.flat == len(args) and not kwargs and not seen:
            found = latest.quick(args)
            if found is not MISSED:
                return found
        if self.given_up is not None or seen:
            return self.fn(*args, **kwargs)
        leaves: list[Any] = []
        shape = flatten((args, kwargs), leaves)
        entry: Any = self.versions.find(leaves, shape)
        if entry is None and self.segmented is None:
            with _one_at_a_time:
                entry = self.versions.find(leaves, shape) or self._instance(leaves, shape)
                if entry is None:
                    entry = self._anew(args, kwargs, leaves, shape)
        if entry is None:
            return self._in_parts(args, kwargs)
        if isinstance(entry, Exception):
            return self._as_it_is(args, kwargs, entry)
        self.latest = entry
        return entry.run(leaves) if entry.shadow is None else entry.shadow(args, kwargs, leaves)

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        """A method: the object it is called on is its first argument."""
        return self if owner is None else types.MethodType(self, owner)

    def __deepcopy__(self, memo: dict[int, Any]) -> Compiled:
        return Compiled(copy.deepcopy(self.fn, memo), self.options)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is compiled anew when it is first called."""
        return Compiled, (self.fn, self.options)

    def reset(self) -> None:
        """Forget all versions, and that it was given up."""
        self.entries.clear()
        self.latest, self.given_up, self.segmented = None, None, None
        self.breaks.clear()
        self.versions = Versions()
        self.families = Families(Through(self.fn), self.options.whole, self.options.dynamic)

    @property
    def traces(self) -> int:
        """How many times the function was traced, at sizes nobody called it with as well."""
        return self.families.traces

    @property
    def instances(self) -> int:
        """How many programs were made without tracing, for other sizes of a known capture."""
        return self.versions.instances

    def _instance(self, leaves: list[Any], shape: Any) -> Entry | None:
        """A version for sizes that were not traced, if there is a capture for all sizes."""
        found = self.families.instance(leaves, shape)
        if found is None:
            return None
        captured, guards = found
        try:
            with ledger.compiling(self.fn, ledger.SIZES, self._why(leaves, shape)) as row:
                asked = Asked(self.fn, self.options, leaves, shape)
                entry = asked.entry or Building(captured, guards, self.options).entry()
                if asked.entry is None:
                    asked.keep(entry, self.files)
                dump.noted(row, self, entry)
        except (StepError, MutationError, CaptureError):
            return None  # tracing says what is wrong, or what must be taken apart
        self.versions.add_instance(leaves, entry)
        self.watch(entry)
        return entry

    def _as_it_is(self, args: Any, kwargs: Any, error: Exception) -> Any:
        """Capturing has raised. If the function itself raises, that is what its caller sees (with
        what it had written until then); else the fault is ours."""
        result = self.fn(*args, **kwargs)
        stage = getattr(error, "stage", "")
        where = f" in the stage {stage!r}" if stage else ""
        text = f"{type(error).__name__}{where}: {_with_line(error)}"
        why = f"capturing or compiling it raised {text}"
        if self.options.fullgraph:
            raise CaptureError(why) from error
        self._give_up(why)
        return result

    def _anew(
        self, args: Any, kwargs: Any, leaves: list[Any], shape: Any
    ) -> Entry | Exception | None:
        """Capture this call; None: it is to run as it is, and why has been said."""
        if sum(e.cache != HIT for e in self.entries) >= config.most_captures:
            count, why = len(self.entries), self._why(leaves, shape)
            self._give_up(f"it was compiled {count} times already; this time because: {why}")
            return None
        try:
            kind = ledger.RECOMPILE if self.entries else ledger.FIRST
            with ledger.compiling(self.fn, kind, self._why(leaves, shape)) as row:
                entry = self._make(args, kwargs, leaves, shape)
                dump.noted(row, self, entry)
        except ledger.CompileBudgetError:
            raise
        except (CaptureError, MutationError) as error:
            self._break(error)
            return None
        except NotYetError:
            return None
        except Exception as error:
            return error
        if entry.cache == HIT:
            return self._from_disk(leaves, entry)
        self.entries.append(entry)
        self.versions.add(leaves, entry)
        self.families.learn(entry.captured, entry.guards, leaves)
        self.watch(entry)
        return entry

    def _break(self, error: Exception) -> None:
        """It can't be one graph: from now on it runs in parts, if the machine knows its code."""
        found = breaks.of_error(error, _user_place(error))
        made = Segmented(self.fn, self)
        handled = made.is_possible() and found.kind in ("write", "changing value")
        if self.options.fullgraph and not handled:
            raise BreakError(found) from error
        if not handled:
            self.breaks.append(found)
        if not made.refused:
            self.segmented = made
            return
        self._give_up(str(found))

    def _in_parts(self, args: Any, kwargs: Any) -> Any:
        """A call that no version fits: in parts, or as it is."""
        if self.segmented is None:
            return self.fn(*args, **kwargs)
        try:
            frames = self.segmented.frames_of(args, kwargs)
        except Stop:
            return self.fn(*args, **kwargs)
        return self.segmented.run(frames)

    def build(
        self,
        captured: Captured,
        guards: Guards,
        stages: Stages,
        kind: str = ledger.SIZES,
        why: str = "a part of it",
    ) -> Entry:
        """A version of a part of the function; `kind` and `why` are for the ledger."""
        with ledger.compiling(self.fn, kind, why) as row:
            entry = Building(captured, guards, self.options, stages).entry()
            dump.noted(row, self, entry)
        return entry

    def _from_disk(self, leaves: list[Any], entry: Entry) -> Entry:
        """It was not captured here: nothing can be learned from it about other sizes."""
        if entry.is_instance:
            self.versions.add_instance(leaves, entry)
        else:
            self.entries.append(entry)
            self.versions.add(leaves, entry)
        return entry

    def watch(self, entry: Entry, *, part: bool = False) -> None:
        """Shadow mode: the first calls of a version (of the function, or of a part of it) are
        compared with what it should do."""
        options = self.options
        if options.shadow <= 0 or options.maker is not None:
            return
        given = entry, options, self.fn, options.shadow, options.shadow_action
        entry.shadow = PartShadow(*given, self._give_up) if part else Shadow(*given)

    def _why(self, leaves: list[Any], shape: Any) -> str:
        """Why none of the versions there are will do, in the user's words."""
        if not self.entries:
            return ledger.FIRST
        guards = (self.versions.alike(leaves) or self.entries)[-1].guards
        if shape != guards.shape:
            return words.other_shape(self.fn, guards.shape, shape)
        found = guards.failure(leaves, shape) or "its surroundings changed"
        return words.in_words(found, words.leaf_names(self.fn, shape))

    def _give_up(self, why: str) -> None:
        self.given_up = why
        name = getattr(self.fn, "__qualname__", type(self.fn).__name__)
        notices.warn(f"{name} runs uncompiled: {why}", stacklevel=4)

    def _make(self, args: Any, kwargs: Any, leaves: list[Any], shape: Any) -> Entry:
        """A new version; composites that the backend turns down for these metas are taken apart."""
        while True:
            try:
                return self._made(args, kwargs, leaves, shape)
            except StepError as error:
                if error.graph is None or not self.options.whole.refuse(error.graph):
                    raise

    def _made(self, args: Any, kwargs: Any, leaves: list[Any], shape: Any) -> Entry:
        asked = Asked(self.fn, self.options, leaves, shape)
        if asked.entry is not None:
            return asked.entry
        stages = Stages()
        with stages.timed("reach"):
            reach = Reach(self.fn, leaves)
        if any(hasattr(m, "_initialize_hook") for m in reach.modules.values()):
            raise NotYetError("a lazy module gets its parameters by a first call")
        with stages.timed("capture"), asked.watching():
            captured = self.families.capture(args, kwargs, leaves, shape, reach)
        stages.nodes["capture"] = len(captured.graph.nodes)
        with stages.timed("reach"):
            reach.refresh()
            guards = Guards(leaves, shape, captured, reach)
        entry = Building(captured, guards, self.options, stages).entry()
        asked.keep(entry)
        self.files = asked.files
        return entry


def _user_place(error: BaseException) -> Place | None:
    """The user's line that an error comes from."""
    place, trace = None, error.__traceback__
    while trace is not None:
        if is_users(trace.tb_frame.f_code):
            place = trace.tb_frame.f_code, trace.tb_lineno
        trace = trace.tb_next
    return place


def _with_line(error: BaseException) -> str:
    """What an error says, with the user's line that it comes from."""
    place = _user_place(error)
    return str(error) if place is None else f"{error} ({describe(place)})"


class Building:
    """From a captured call to an entry."""

    def __init__(
        self, captured: Captured, guards: Guards, options: Options, stages: Stages | None = None
    ) -> None:
        self.captured, self.guards, self.options = captured, guards, options
        self.stages = Stages() if stages is None else stages
        began = perf_counter()
        with during("functionalize"):
            self.graph = functionalize(captured.graph, captured.roots, captured.fresh)
        if config.verify_passes:
            verified(self.graph, "functionalize")
        self.stages.note("functionalize", self.graph, began)
        self.key: list[Source] = []
        if options.counts_draws:
            self.graph, key = count_draws(self.graph, default_generator)
            self.key = [] if key is None else [Source(KEY)]
        self.sources = [*captured.sources, *self.key]

    def entry(self) -> Entry:
        captured = self.captured
        if captured.gradients:
            return self._differentiable()
        constants = constants_of(self.sources)
        runner, program = self._compiled(self.graph, constants, self.stages)
        return self._entry(runner, program)

    def _compiled(self, graph: Graph, constants: dict[int, Any], stages: Stages) -> tuple[Any, Any]:
        if self.options.maker is not None:
            graph = improve(graph, stages, self.options.disable, self.options.setting)
            return self.options.maker(graph, constants), Ends(graph, constants)
        runner = compile_graph(
            graph,
            self.options.backend,
            constants=constants,
            mode=self.options.mode,
            disable=self.options.disable,
            stages=stages,
            body=self.options.whole.graph_of,
        )
        return runner, stages.program

    def _entry(self, runner: Any, program: Any) -> Entry:
        return Entry(
            self.captured, self.guards, runner, program.results, sorted(program.written),
            self.stages, self.key,
        )  # fmt: skip

    def _differentiable(self) -> Entry:
        """Two programs: the call, and the backward pass that somebody may run later."""
        captured = self.captured
        joint = improve(self.graph, self.stages, self.options.disable, self.options.setting)
        with during("partition"):
            halves = halves_of(joint, captured, self.sources, self.options.budget)
        runner, program = self._compiled(halves.forward, halves.constants, self.stages)
        entry = self._entry(runner, program)
        tangents = [v for v, s in zip(joint.inputs, self.sources, strict=True) if s.kind == TANGENT]
        entry.joint = self._backward(halves, tangents)
        return entry

    def _backward(self, halves: Halves, tangents: list[Value]) -> Joint:
        saved: list[tuple[bool, int]] = []
        constants = halves.saved_constants
        given = (k for k, s in enumerate(halves.primals) if s.kind not in (CONSTANT, NUMBER))
        place = {k: at for at, k in enumerate(given)}
        for k, kept in enumerate(halves.saved):
            if kept.kind == OUTPUT:
                saved.append((False, kept.index))
            elif kept.index in place:
                saved.append((True, place[kept.index]))
            elif k not in constants:
                raise CaptureError("the backward pass needs a number that is given at each call")
        stages = Stages()
        runner, program = self._compiled(halves.backward, constants, stages)
        return Joint(
            runner, saved, [t.meta for t in tangents], program.results, self.captured.gradients,
            self.captured.wanted, stages, halves.report,
        )  # fmt: skip


Maker = Callable[[Graph, dict[int, Any]], Any]
"""From a graph without mutation, and the tensors of inputs (by number) that never change, to what
runs it: `runner(arguments, numbers, results)`."""


class Ends:
    """What is to be known of a graph that no program was made of: its results, its writes."""

    def __init__(self, graph: Graph, constants: dict[int, Any]) -> None:
        self.results = [v.meta for v in graph.outputs]
        given = [
            v.index
            for k, v in enumerate(graph.inputs)
            if k not in constants and isinstance(v.meta, TensorMeta)
        ]
        self.written = [given.index(target.index) for target, _ in graph.writes]


class Options:
    """What `compile` was told."""

    def __init__(
        self,
        backend: str,
        mode: str | None,
        fullgraph: bool,
        disable: frozenset[str],
        budget: float = 1.0,
        dynamic: bool | None = None,
        maker: Maker | None = None,
    ) -> None:
        self.maker = maker
        self.backend, self.mode, self.fullgraph, self.disable = backend, mode, fullgraph, disable
        self.budget, self.dynamic = budget, dynamic
        self.shadow, self.shadow_action = config.shadow, config.shadow_action
        """How many calls of each version are compared with eager, and what a difference does."""
        self.too_large = False
        """Whether the function sees more than a key of the programs on disk can describe."""
        self.dump, self.dump_kernels = "", False
        """A folder for the text of each stage."""
        self.whole = Composites(backend, mode == "bitwise")

    @property
    def setting(self) -> Setting:
        """What passes are told."""
        backend = None if self.maker is not None else backends.get(self.backend)
        return Setting.of(backend, bitwise=self.mode == "bitwise")

    @property
    def counts_draws(self) -> bool:
        """Whether random numbers follow from a key and counters, not from the generator."""
        return self.mode != "bitwise" and "count_draws" not in self.disable

    def __reduce__(self) -> tuple[Any, ...]:
        given = self.backend, self.mode, self.fullgraph, self.disable, self.budget, self.dynamic
        return Options, given


def compile(
    model: Any,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
    maker: Maker | None = None,
) -> Any:
    """A function that is captured and compiled when it is first called.

    `backend`: the name of a registered backend (the host's by default). `mode="bitwise"`: every bit
    as eager has it. `fullgraph=True`: raise where the function can't be captured, instead of
    running it as it is. `options`: `disable` (names of passes to leave out), `memory_budget` (from
    0 to 1, how much memory may be spent to save time in a backward pass called from outside),
    `dump` (a folder for the text of each stage; `dump_kernels`: machine code too), `shadow` (how
    many calls of each version are made both ways and compared), `shadow_action` ("warn" and go on
    uncompiled, or "raise").
    `dynamic`: whether a capture is made for all sizes: None, when a second size is seen; True, at
    once; False, never. `maker`: runs the graphs instead of the backend. `lucerne.compile` is the
    public door to it.
    """
    if disable:
        return model
    if mode not in _MODES:
        known = ", ".join(repr(m) for m in _MODES if m is not None)
        raise ValueError(f"compile: mode is one of {known}, not {mode!r}")
    chosen = options or {}
    off = frozenset(chosen.get("disable", ()))
    unknown = sorted(off - {p.name for p in PASSES} - _STAGES)
    if unknown:
        known = ", ".join(sorted({p.name for p in PASSES} | _STAGES))
        raise ValueError(f"compile: there is no pass {', '.join(unknown)} to disable, only {known}")
    budget = float(chosen.get("memory_budget", 1.0))
    made = Options(backend or backends.HOST, mode, fullgraph, off, budget, dynamic, maker)
    made.dump = str(chosen.get("dump", ""))
    made.dump_kernels = bool(chosen.get("dump_kernels", False))
    made.shadow = int(chosen.get("shadow", config.shadow))
    made.shadow_action = chosen.get("shadow_action", config.shadow_action)
    if made.shadow_action not in ACTIONS:
        known = " or ".join(map(repr, ACTIONS))
        raise ValueError(f"compile: shadow_action is {known}, not {made.shadow_action!r}")
    return Compiled(model, made)
