"""Recording: while it is on, everything the framework does becomes a span.

A span has a name, a beginning, an end and the span it lies in; spans of one thread nest. Eager ops
arrive through `tensor.eager.watchers.watch_calls`, everything else through `base.watch.Watch`.
Nothing that is computed changes: every call goes on to where it would have gone.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from time import perf_counter_ns
from types import FrameType
from typing import Any

from lucerne._src import backends
from lucerne._src.base.process import forks
from lucerne._src.base.process.profiler_hook import (
    BACKWARD,
    COLLECTIVE,
    FRONT,
    FUNCTION,
    LEAF,
    PROGRAM,
    Watch,
)
from lucerne._src.base.process.source_location import Origin, is_users
from lucerne._src.ir import dispatch
from lucerne._src.ir.graph import Node
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.ir.program import Program
from lucerne._src.tensor.autograd.engine import SHOWN_AS
from lucerne._src.tensor.autograd.node import LEAF_SHOWN_AS
from lucerne._src.tensor.autograd.pending import PART
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.eager import run as eager
from lucerne._src.tensor.eager.watchers import quicken, unwatch_calls, watch_calls
from lucerne.profiler import names, work
from lucerne.profiler.blocks import Blocks

_state = dispatch.state
_MOST_FRAMES = 64
_CALL, _MOST_FRAMES_TO_CALL = "Compiled.__call__", 8
"""How a compiled function is called, and how far below that a program runs at most."""


class Span:
    """Something that took time. Times are nanoseconds of `time.perf_counter_ns`."""

    __slots__ = (
        "begin", "end", "extra", "first", "flops", "kind", "memory_begin", "memory_end", "modules",
        "name", "node", "parent", "sequence", "shapes", "stack", "thread", "types", "values",
    )  # fmt: skip

    def __init__(self, name: str, kind: str, thread: int, parent: Span | None) -> None:
        self.name, self.kind, self.thread, self.parent = name, kind, thread, parent
        self.begin = self.end = 0
        self.first = 0
        """The number that the next call with a history would have got when it began."""
        self.sequence = -1
        """The number of the node that the backward pass will run, or runs now, for it."""
        self.shapes: list[Any] | None = None
        self.types: list[str] | None = None
        self.values: list[str] | None = None
        self.stack: list[str] = []
        self.modules: tuple[str, ...] = ()
        self.flops = 0
        self.memory_begin = self.memory_end = 0
        self.node: Any = None
        self.extra: dict[str, Any] | None = None
        """What only compiled kernels have: user's lines, bytes."""


class Wanted:
    """What is to be noted besides names and times."""

    def __init__(
        self, *, shapes: bool = False, memory: bool = False, stack: bool = False,
        flops: bool = False, modules: bool = False,
    ) -> None:  # fmt: skip
        self.shapes, self.memory, self.stack = shapes, memory, stack
        self.flops, self.modules = flops, modules


class Recording:
    """One stretch of time in which spans are collected. `start` and `stop` in one thread."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.spans: list[Span] = []
        self.began = self.ended = 0
        self.blocks: Blocks | None = Blocks() if wanted.memory else None
        self._local = threading.local()
        self._sequences: dict[int, int] = {}
        """Numbers of calls that gradients can go back through: by the id of the record that a call
        left, or by the number of its node, negative."""
        self._next_number = 0
        self._thread = 0
        self._programs: list[tuple[Span, Program, Sequence[int]]] = []
        """Runs of compiled programs, whose steps become spans when the recording is over."""
        self._allocated = _allocated_bytes() if wanted.memory else None

    # ---- switching -----------------------------------------------------------------------------

    def start(self) -> None:
        if Watch.current is not None:
            raise RuntimeError(
                "a profile is already running: profiles don't nest. Leave the outer one first, "
                "or use record_function to name a part of it"
            )
        self._thread = threading.get_ident()
        self.began = perf_counter_ns()
        Watch.current = self
        watch_calls(self.run, self.public)

    def stop(self) -> None:
        if Watch.current is not self:
            raise RuntimeError("this profile is not running")
        if threading.get_ident() != self._thread:
            raise RuntimeError("a profile is stopped by the thread that started it")
        unwatch_calls()
        Watch.current = None
        self.ended = perf_counter_ns()
        for span in self.spans:  # still open: somebody stopped the profile in the middle of them
            if not span.end:
                span.end = self.ended
                span.memory_end = span.memory_begin
        for run in self._programs:
            self._expand(*run)
        self._programs.clear()
        if self.blocks is not None:
            self.blocks.finish(self.ended)

    # ---- spans ---------------------------------------------------------------------------------

    def _open(self) -> list[Span]:
        """The open spans of this thread, outermost first."""
        try:
            return self._local.open
        except AttributeError:
            self._local.open = found = list[Span]()
            self._local.thread = threading.get_native_id()
            self._local.passing = False
            return found

    def _enter(self, name: str, kind: str, stack: list[Span]) -> Span:
        span = Span(name, kind, self._local.thread, stack[-1] if stack else None)
        if self.wanted.stack or self.wanted.modules:
            self._look_at_frames(span)
        if self._allocated is not None:
            span.memory_begin = self._allocated()
        self.spans.append(span)
        stack.append(span)
        span.first = self._next_number
        span.begin = perf_counter_ns()
        return span

    def _leave(self, span: Span) -> None:
        span.end = perf_counter_ns()
        if self._allocated is not None:
            span.memory_end = self._allocated()
        stack = self._open()
        while stack:  # an error may have skipped some
            left = stack.pop()
            if left is span:
                break
            left.end, left.memory_end = span.end, span.memory_end

    def begin(self, name: str, kind: str, thing: Any = None) -> Span | None:
        """See `base.watch.Watcher`."""
        if _state.kernel_level:  # a function is captured: nothing happens really
            return None
        stack = self._open()
        if kind == LEAF:
            return self._leaf(name, thing, stack)
        if kind == FRONT:
            spelled = names.spelled(name)
            if spelled is None or _is_same(stack, spelled) or _does_nothing(name, thing):
                return None
            span = self._enter(spelled, FUNCTION, stack)
            if self.wanted.shapes:
                _note_arguments(span, thing)
            return span
        if kind == PROGRAM:
            name = _program_name(thing)
        span = self._enter(name, kind, stack)
        if kind == COLLECTIVE:
            span.extra = thing
        elif kind == BACKWARD:
            self._note_node(span, thing)
        elif self.blocks is not None and name.startswith("Optimizer.step#"):
            span.node = "optimizer"
        return span

    def _note_node(self, span: Span, node: Any) -> None:
        """Which op a node of the backward pass belongs to."""
        if span.name.endswith(LEAF_SHOWN_AS):
            span.node = None if self.blocks is None else node.variable
            return
        key = getattr(node, "of_record", None) or -1 - node.sequence
        span.sequence = self._sequences.get(key, -1)
        span.node = None if self.blocks is None else "backward"

    def _leaf(self, name: str, leaf: Any, stack: list[Span]) -> Span:
        """A gradient has arrived while the node before is still at it: that one is done now, as the
        engine of PyTorch serves a leaf after it."""
        for _ in range(2):
            if stack and stack[-1].kind == BACKWARD:
                self._leave(stack[-1])
        outer = self._enter(SHOWN_AS + name, BACKWARD, stack)
        self._enter(name, BACKWARD, stack)
        outer.node = None if self.blocks is None else leaf
        return outer

    def end(self, span: Span) -> None:
        """See `base.watch.Watcher`."""
        if not span.end:
            self._leave(span)
        if self.blocks is not None and span.node is not None:
            self.blocks.node_done(span)
            span.node = None

    # ---- eager ops -----------------------------------------------------------------------------

    def run(self, op: Op, args: tuple[Any, ...], out: Any = None) -> Any:
        """A call of an op, on its way to where it would have gone."""
        if _state.kernel_level:
            return eager.run(op, args, out)
        stack = self._open()
        if self._local.passing:  # machine code did not take what it was offered
            self._local.passing = False
            quicken(False)
            return eager.run(op, args, out)
        name = names.of_call(op, getattr(args[0], "_meta", None) if args else None, out)
        if name is None:
            return eager.run(op, args, out)
        if _is_same(stack, name):  # a front, or an op that another one of the same name calls
            result = self._pass_on(op, args, out)
            self._note_result(stack[-1], op, args, result)
            return result
        span = self._enter(name, FUNCTION, stack)
        if self.wanted.shapes:
            _note_arguments(span, args)
        try:
            result = self._pass_on(op, args, out)
        finally:
            self._leave(span)
        self._note_result(span, op, args, result)
        return result

    def _pass_on(self, op: Op, args: tuple[Any, ...], out: Any) -> Any:
        """Let machine code have a call that it may know, as it would without a profile; what it
        does not take comes back to `run`."""
        if not quicken(True):
            return eager.run(op, args, out)
        self._local.passing = True
        try:
            return dispatch.entry.run(op, args, out)
        finally:
            self._local.passing = False
            quicken(False)

    def public(self, function: Any, given: tuple[Any, ...], named: tuple[str, ...] | None) -> Any:
        """A call of a public function or a method."""
        count = len(given) - len(named or ())
        kwargs = dict(zip(named or (), given[count:], strict=True))
        run = function.__wrapped__
        qualified = names.of_function(function)
        span = None if qualified is None else self.begin(qualified, FRONT, given)
        if span is None:
            return run(*given[:count], **kwargs)
        try:
            return run(*given[:count], **kwargs)
        finally:
            self.end(span)

    def _note_result(self, span: Span, op: Op, args: Any, result: Any) -> None:
        outs = result if isinstance(result, (tuple, list)) else (result,)
        made = [t for t in outs if isinstance(t, TensorBase)]
        if _state.grad_enabled and span.sequence < 0:
            span.sequence = self._number(span, made)
        if self.wanted.flops:
            metas = [_metas_of(a) for a in args]
            span.flops = max(span.flops, work.flops(op, metas, [t._meta for t in made]))
        if self.blocks is not None:
            self.blocks.saw(span, args, made)

    def _number(self, span: Span, made: list[Any]) -> int:
        """The number of the history that a call has given its results; -1: none, or a view's."""
        for t in made:
            if not t._needs_grad:
                continue
            record = getattr(t, "_record", None)
            if record is not None:
                key = id(record[0] if len(record) == PART else record)
            elif t._view is not None or getattr(t._auto, "grad_fn", None) is None:
                continue
            else:
                key = -1 - t._auto.grad_fn.sequence
            known = self._sequences.get(key, -1)
            if known < span.first:  # of another history, which is gone: the place is used again
                known = self._sequences[key] = self._next_number
                self._next_number += 1
            return known
        return -1

    # ---- compiled programs ---------------------------------------------------------------------

    def steps(self, span: Span, program: Program, times: Sequence[int]) -> None:
        """See `base.watch.Watcher`: each step becomes a span of its own, later."""
        if any(times):
            self._programs.append((span, program, times))
        else:  # it was not run: its caller takes another way
            self.spans.remove(span)

    def _expand(self, span: Span, program: Program, times: Sequence[int]) -> None:
        for k, step in enumerate(program.steps):
            begin, end = times[2 * k], times[2 * k + 1]
            if not begin:
                continue
            made = Span(_step_name(step), FUNCTION, span.thread, span)
            made.begin, made.end = max(begin, span.begin), max(end, begin)
            made.memory_begin = made.memory_end = span.memory_begin
            self._describe_step(made, step)
            self.spans.append(made)

    def _describe_step(self, span: Span, step: Any) -> None:
        inputs = [p.meta for p in step.inputs if hasattr(p, "meta")]
        span.extra = {"Bytes": work.bytes_of_step(step)}
        lines = list(dict.fromkeys(_line(origin) for origin in step.origins))
        if lines:
            span.extra["Lines"] = lines
            if self.wanted.stack:
                span.stack = lines
        if self.wanted.flops:
            span.flops = work.flops_of_graph(step.graph)
        if self.wanted.shapes:
            span.shapes = [list(m.shape) for m in inputs]
            span.types = [m.dtype.name for m in inputs]

    # ---- where it was called from --------------------------------------------------------------

    def _look_at_frames(self, span: Span) -> None:
        frame: FrameType | None = sys._getframe(2)
        stack: list[str] = []
        modules: list[str] = []
        while frame is not None and len(stack) < _MOST_FRAMES:
            code = frame.f_code
            if is_users(code):
                stack.append(f"{code.co_filename}({frame.f_lineno}): {code.co_name}")
            if self.wanted.modules and code.co_name == "forward" and code.co_argcount:
                owner = frame.f_locals.get(code.co_varnames[0])
                if hasattr(owner, "_parameters"):
                    modules.append(type(owner).__name__)
            frame = frame.f_back
        if self.wanted.stack:
            span.stack = stack
        span.modules = tuple(reversed(modules))


def _forget_in_child() -> None:
    """In a forked process (a loader's worker) nobody waits for what it records."""
    watcher = Watch.current
    if isinstance(watcher, Recording):
        Watch.current = None
        unwatch_calls(threading.get_ident() == watcher._thread)


forks.in_child(_forget_in_child)


def _is_same(stack: list[Span], name: str) -> bool:
    """Whether the innermost span is of that name: ours have layers that PyTorch has not."""
    return bool(stack) and stack[-1].name == name and stack[-1].kind == FUNCTION


def _does_nothing(name: str, args: Sequence[Any]) -> bool:
    """`x.contiguous()` of what is contiguous already: PyTorch doesn't show it either."""
    return name == "contiguous" and len(args) == 1 and bool(args[0]._meta.contiguous)


def _metas_of(a: Any) -> Any:
    if isinstance(a, (tuple, list)):
        return [x._meta for x in a if isinstance(x, TensorBase)]
    return a._meta if isinstance(a, TensorBase) else a


def _note_arguments(span: Span, args: Sequence[Any]) -> None:
    shapes: list[Any] = []
    types: list[str] = []
    values: list[str] = []
    for a in args:
        many = isinstance(a, (tuple, list)) and any(isinstance(x, TensorBase) for x in a)
        if isinstance(a, TensorBase):
            shapes.append(list(a._meta.shape))
            types.append(_type_name(a._meta))
        elif many:
            shapes.append([list(x._meta.shape) if isinstance(x, TensorBase) else [] for x in a])
            types.append("TensorList")
        else:
            shapes.append([])
            is_number = isinstance(a, (int, float, complex)) and not isinstance(a, bool)
            types.append("Scalar" if is_number else "")
        values.append("" if isinstance(a, TensorBase) or many or a is None else _short(a))
    span.shapes, span.types, span.values = shapes, types, values


def _short(a: Any) -> str:
    text = str(a) if isinstance(a, (int, float, bool, complex, str, tuple, list)) else ""
    return text if len(text) <= 80 else text[:77] + "..."


_C_NAMES = {"float32": "float", "float64": "double", "int64": "long int", "int32": "int"}


def _type_name(meta: TensorMeta) -> str:
    return _C_NAMES.get(meta.dtype.name, meta.dtype.name)


def _line(origin: Origin) -> str:
    return f"{origin.file}({origin.line}): {origin.function}"


def _step_name(step: Any) -> str:
    """A fused kernel by its ops, in order, each once: `fused: aten::mm + aten::relu`."""
    listed = dict.fromkeys(_node_name(node) for node in step.graph.nodes)
    parts = [name.removeprefix("aten::").removeprefix("lucerne::") for name in listed]
    if len(parts) == 1:
        return next(iter(listed))
    text = "+".join(parts[:6]) + (f"+{len(parts) - 6} more" if len(parts) > 6 else "")
    return f"fused::{text}"


def _node_name(node: Node) -> str:
    first = getattr(node.args[0], "meta", None) if node.args else None
    return names.of_call(node.op, first) or node.op.name


def _program_name(program: Program) -> str:
    """The function that was compiled, if it is being called; else the one its first line is in."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(_MOST_FRAMES_TO_CALL):
        if frame is None:
            break
        if frame.f_code.co_qualname == _CALL:
            fn = getattr(frame.f_locals["self"], "fn", None)
            return f"Compiled: {getattr(fn, '__name__', type(fn).__name__)}"
        frame = frame.f_back
    origins = [o for step in program.steps for o in step.origins if o.function]
    if not origins:
        return "Compiled program"
    name = origins[0].function.rpartition("<locals>.")[2]
    return f"Compiled: {name}" + (" (backward)" if all(o.backward for o in origins) else "")


def _allocated_bytes() -> Any:
    """A function that tells how many bytes of the host's memory are in use; None: unknown."""
    memory = backends.get(backends.HOST).memory
    return None if memory is None else memory.allocated_now
