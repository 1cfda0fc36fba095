"""What formulas are written with: tensors that are read and written by coordinates, and kernels."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from lucerne._src.backends.contract.backend import TensorState
from lucerne._src.backends.contract.tensor_view import Room
from lucerne._src.backends.formulas.writer import Launch, Writer
from lucerne._src.base import dtype as dt
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.graph import Value as GraphValue
from lucerne._src.ir.meta import NUMBER_METAS, NumberMeta, TensorMeta, make_meta
from lucerne._src.ir.scalar.protocol import ScalarValue, s
from lucerne._src.ir.scalar.typed import TypedNum

Coordinates = Sequence[Any]


class FormulaTensor:
    """An operand or a result: `t(i, j)` reads an element, `t.put((i, j), value)` writes one."""

    __slots__ = ("buffer", "frame", "meta", "strides")

    def __init__(
        self, frame: Frame, buffer: int, meta: TensorMeta, strides: Sequence[int] | None = None
    ) -> None:
        self.frame, self.buffer, self.meta = frame, buffer, meta
        self.strides = tuple(meta.strides if strides is None else strides)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.meta.shape)

    @property
    def ndim(self) -> int:
        return len(self.strides)

    @property
    def dtype(self) -> dt.dtype:
        return self.meta.dtype

    def spread(self, shape: Sequence[int]) -> FormulaTensor:
        """The same elements, broadcast to a shape."""
        missing = len(shape) - self.meta.ndim
        steps = [
            0 if n == 1 else st for n, st in zip(self.meta.shape, self.meta.strides, strict=True)
        ]
        return FormulaTensor(self.frame, self.buffer, self.meta, [0] * missing + steps)

    def _place(self, at: Coordinates) -> ScalarValue:
        kernel = self.frame.kernel_now
        place = kernel.offset(self.buffer)
        for d, i in enumerate(at):
            place = place + i * kernel.stride(self, d)
        return place

    def __call__(self, *at: Any) -> ScalarValue:
        writer, dtype = self.frame.writer, self.dtype
        place = self._place(at)
        if dtype.category != dt.COMPLEX:
            return ScalarValue(writer, self._read(place, dtype))
        part, place = dtype.to_real(), place * 2
        re, im = self._read(place, part), self._read(place + 1, part)
        return ScalarValue(writer, writer.pair(re, im))

    def _read(self, place: ScalarValue, dtype: dt.dtype) -> TypedNum:
        writer = self.frame.writer
        found = writer.load(self.buffer, place.raw.re, dtype)
        return TypedNum(
            dtype.compute, found if dtype.compute is dtype else writer.widen(found, dtype)
        )

    def put(self, at: Coordinates, value: Any) -> None:
        """Write an element, rounded to the tensor's dtype."""
        writer, dtype = self.frame.writer, self.dtype
        num = writer.number(value.raw if type(value) is ScalarValue else value, dtype.compute)
        place = self._place(at)
        if dtype.category != dt.COMPLEX:
            self._write(place, num.re, dtype)
            return
        place = place * 2
        self._write(place, num.re, dtype.to_real())
        self._write(place + 1, num.im, dtype.to_real())

    def _write(self, place: ScalarValue, value: Any, dtype: dt.dtype) -> None:
        writer = self.frame.writer
        stored = value if dtype.compute is dtype else writer.narrow(value, dtype)
        writer.store(self.buffer, place.raw.re, stored, dtype)


class FormulaVariable:
    """A number that changes while the kernel runs."""

    __slots__ = ("_names", "_writer", "dtype")

    def __init__(self, writer: Writer, value: Any, dtype: dt.dtype) -> None:
        self._writer, self.dtype = writer, dtype
        num = writer.number(value.raw if type(value) is ScalarValue else value, dtype)
        part = dtype.to_real()
        self._names = [writer.variable(v, part) for v in (num.re, num.im) if v is not None]

    @property
    def now(self) -> ScalarValue:
        return ScalarValue(self._writer, TypedNum(self.dtype, *self._names))

    def set(self, value: Any) -> None:
        num = self._writer.number(value.raw if type(value) is ScalarValue else value, self.dtype)
        for name, v in zip(self._names, (num.re, num.im), strict=False):
            self._writer.assign(name, v)


class FormulaKernel:
    """One kernel of a formula, with the numbers it needs when it runs."""

    def __init__(self, writer: Writer, items: int) -> None:
        self.writer, self.items = writer, items
        self.constants: list[int] = []
        self.offsets: list[tuple[int, int]] = []
        self.numbers: list[tuple[int, int, Any]] = []
        self._known: dict[Any, ScalarValue] = {}

    def _parameter(self, value: int, dtype: dt.dtype = dt.int64) -> ScalarValue:
        self.constants.append(value)
        k = len(self.constants) - 1
        return ScalarValue(self.writer, TypedNum(dtype, self.writer.parameter(k, dtype)))

    def size(self, n: int) -> ScalarValue:
        """A number that is the same at each call. It is no part of the kernel's text: kernels for
        other sizes are the same kernel."""
        return self._parameter(n)

    def stride(self, t: FormulaTensor, d: int) -> ScalarValue:
        if (t, d) not in self._known:
            self._known[t, d] = self._parameter(t.strides[d])
        return self._known[t, d]

    def offset(self, buffer: int) -> ScalarValue:
        """Where a tensor begins in its buffer."""
        if buffer not in self._known:
            self._known[buffer] = self._parameter(0)
            self.offsets.append((len(self.constants) - 1, buffer))
        return self._known[buffer]

    def number(self, source: int, kind: type) -> TypedNum:
        """A Python number among the inputs, given anew at each call."""
        key = ("number", source)
        if key not in self._known:
            dtype = {bool: dt.int64, int: dt.int64}.get(kind, dt.float64)
            parts = [self._parameter(0, dtype)]
            self.numbers.append((len(self.constants) - 1, source, _PARTS[kind]))
            if kind is complex:
                parts.append(self._parameter(0, dtype))
                self.numbers.append((len(self.constants) - 1, source, _imaginary))
            made = parts[0] if len(parts) == 1 else s.complex(*parts)
            self._known[key] = s.cast(made, dt.bool_) if kind is bool else made
        num: TypedNum = self._known[key].raw
        return TypedNum(num.dtype, num.re, num.im, weak=True)


def _bits(x: float) -> int:
    return int(np.float64(x).view(np.int64))


def _whole(x: Any) -> int:
    kept = int(x) & ((1 << 64) - 1)
    return kept - (kept >> 63 << 64)


def _real(x: complex) -> int:
    return _bits(x.real)


def _imaginary(x: complex) -> int:
    return _bits(x.imag)


_PARTS: dict[type, Any] = {bool: int, int: _whole, float: _bits, complex: _real}


class Frame:
    """A call being written as kernels."""

    def __init__(self, graph: Graph, metas: Sequence[TensorMeta], make_writer: Any) -> None:
        (self.node,) = graph.nodes
        self.begin(graph, metas, make_writer)
        self._inputs = iter(range(len(graph.inputs)))
        self.args = [self._argument(a) for a in self.node.args]

    def begin(self, graph: Graph, metas: Sequence[TensorMeta], make_writer: Any) -> None:
        """What frames of one op and of groups share: buffers and results."""
        self.make_writer = make_writer
        self.kernels: list[tuple[FormulaKernel, Launch]] = []
        self.kernel_now: Any = None
        self.tensors = [k for k, v in enumerate(graph.inputs) if type(v.meta) is TensorMeta]
        """Which inputs have buffers, in their order; the results' come after them."""
        self.buffer_of = {k: n for n, k in enumerate(self.tensors)}
        self.scratches: list[TensorMeta] = []
        """Memory that kernels share and nobody sees; its buffers come last."""
        count = len(self.tensors)
        self.outs = [FormulaTensor(self, count + n, meta) for n, meta in enumerate(metas)]

    @property
    def out(self) -> FormulaTensor:
        return self.outs[0]

    @property
    def writer(self) -> Writer:
        found: Writer = self.kernel_now.writer
        return found

    def _argument(self, a: Any) -> Any:
        if type(a) is tuple and any(type(x) is GraphValue for x in a):
            return tuple([self._argument(x) for x in a])
        if type(a) is not GraphValue:
            return a
        k = next(self._inputs)
        if type(a.meta) is TensorMeta:
            return FormulaTensor(self, self.buffer_of[k], a.meta)
        return FormulaNumber(self, k, kind_of(a.meta))

    @contextlib.contextmanager
    def kernel(self, shape: Sequence[int]) -> Iterator[list[Any]]:
        """A kernel that runs for each place of a shape; gives its coordinates."""
        self.kernel_now = FormulaKernel(self.make_writer(), math.prod(shape))
        item = ScalarValue(self.writer, TypedNum(dt.int64, self.writer.item()))
        yield self.unravel(item, shape)
        kernel = self.kernel_now
        count = len(self.tensors) + len(self.outs) + len(self.scratches)
        launch = self.writer.finish(count, len(kernel.constants), kernel.items)
        self.kernels.append((kernel, launch))
        self.kernel_now = None

    def scratch(self, shape: Sequence[int], dtype: dt.dtype) -> FormulaTensor:
        """Memory for the time of the call; asked for before the first kernel."""
        meta = make_meta(dtype, tuple(shape), None, self.out.meta.device)
        self.scratches.append(meta)
        return FormulaTensor(
            self, len(self.tensors) + len(self.outs) + len(self.scratches) - 1, meta
        )

    def unravel(self, item: ScalarValue, shape: Sequence[int]) -> list[Any]:
        """The coordinates of element number `item`."""
        found: list[Any] = []
        for d in range(len(shape) - 1, 0, -1):
            n = self.size(shape[d])
            found.append(self.rest(item, n))
            item = self.quotient(item, n)
        return [item, *reversed(found)] if shape else []

    def size(self, n: int) -> ScalarValue:
        found: ScalarValue = self.kernel_now.size(n)
        return found

    def quotient(self, a: ScalarValue, b: ScalarValue) -> ScalarValue:
        """Division of numbers that are not negative, by one that is not 0."""
        return ScalarValue(self.writer, self.writer._emit("quotient", a.raw, b.raw))

    def rest(self, a: ScalarValue, b: ScalarValue) -> ScalarValue:
        return ScalarValue(self.writer, self.writer._emit("rest", a.raw, b.raw))

    def value(self, x: Any, dtype: dt.dtype) -> ScalarValue:
        """A number of any sort as this compute dtype."""
        x = x.now if isinstance(x, FormulaNumber) else x
        raw = x.raw if type(x) is ScalarValue else x
        return ScalarValue(self.writer, self.writer.number(raw, dtype))

    def variable(self, value: Any, dtype: dt.dtype) -> FormulaVariable:
        return FormulaVariable(self.writer, value, dtype)

    @contextlib.contextmanager
    def loops(self, sizes: Sequence[int]) -> Iterator[list[ScalarValue]]:
        """Loops inside each other, the last one innermost."""
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(self.loop(n)) for n in sizes]

    @contextlib.contextmanager
    def loop(self, count: Any) -> Iterator[ScalarValue]:
        count = self.size(count) if type(count) is int else count
        with self.writer.loop(count.raw.re) as i:
            yield ScalarValue(self.writer, TypedNum(dt.int64, i))

    @contextlib.contextmanager
    def when(self, condition: ScalarValue) -> Iterator[None]:
        with self.writer.when(condition.raw.re):
            yield

    def require(self, condition: ScalarValue, error: type[Exception], text: str) -> None:
        self.writer.require(condition.raw, error, text)


class FormulaNumber:
    """A Python number that comes with the call."""

    __slots__ = ("frame", "kind", "source")

    def __init__(self, frame: Frame, source: int, kind: type) -> None:
        self.frame, self.source, self.kind = frame, source, kind

    @property
    def now(self) -> ScalarValue:
        return ScalarValue(self.frame.writer, self.frame.kernel_now.number(self.source, self.kind))

    @property
    def meta(self) -> NumberMeta:
        return NUMBER_METAS[self.kind]


def kind_of(meta: Any) -> type:
    """The type of a number, as a graph notes it: by its meta, its type, or an example."""
    if isinstance(meta, NumberMeta):
        return meta.kind
    kind = meta if isinstance(meta, type) else type(meta)
    return next((k for k in (bool, int, float, complex) if issubclass(kind, k)), kind)


class FormulaExecutable:
    """A graph of one op as kernels; made anew for results that lie in memory in another way."""

    def __init__(self, graph: Graph, formula: Any, backend: Any, frame: Any = Frame) -> None:
        self.graph, self.formula, self.backend = graph, formula, backend
        self.frame = frame
        self._ready: dict[tuple[TensorMeta, ...], Any] = {}
        self._made(tuple([v.meta for v in graph.outputs]))

    def _made(self, metas: tuple[TensorMeta, ...]) -> Any:
        frame = self.frame(self.graph, metas, self.backend.writer)
        self.formula(frame, *frame.args)
        calls = [
            (k, np.array(k.constants or [0], np.int64), launch)
            for k, launch in frame.kernels
            if k.items
        ]
        self._ready[metas] = frame.tensors, frame.scratches, calls
        return self._ready[metas]

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[TensorState]) -> None:
        metas = tuple([o._meta for o in outputs])
        slots, scratches, calls = self._ready.get(metas) or self._made(metas)
        tensors = [inputs[k] for k in slots] + list(outputs)
        tensors += [Room(meta, self.backend) for meta in scratches]
        buffers = [t._storage.buffer for t in tensors]
        for kernel, constants, launch in calls:
            given = constants.copy()
            for k, buffer in kernel.offsets:
                given[k] = tensors[buffer]._offset
            for k, source, part in kernel.numbers:
                given[k] = part(inputs[source])
            failed = launch(buffers, given)
            if failed:
                error, text = kernel.writer.requirements[failed - 1]
                raise error(text)
