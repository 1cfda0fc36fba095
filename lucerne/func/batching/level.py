"""BatchLevel: while it is open, tensors stand for a batch of tensors, and ops run once for all.

The payload of a tensor is `Batch(value, batched)`. A batched value has one dimension more than the
tensor shows, always the first. One that is not batched stands for itself: work that does not depend
on the batch is done once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from lucerne._src.ir import dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Op
from lucerne._src.ops.copy.cast import cast, copy
from lucerne._src.ops.creation.fills import empty_strided
from lucerne._src.ops.pointwise.complexes import flip_view
from lucerne._src.ops.view.slicing import strided_view
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.eager.keys import metas_of, results_of
from lucerne._src.tensor.layers.layer import Cell, Level, cell_of

_COPY: Op = copy.op  # type: ignore[attr-defined]

Rule = Callable[["Call"], Any]
"""Takes a call, gives its result for the whole batch: tensors whose first dimension is it."""

RULES: dict[str, Rule] = {}
"""By qualified name of an op; ops that are not here go by KINDS."""
KINDS: dict[str, Rule] = {}
"""By kind of op."""
VIEWS: dict[str, Callable[..., Any]] = {}
"""By qualified name of a view: `f(value, args, results)` gives the view of a batched value."""
FRONTS: dict[Any, Callable[..., Any]] = {}
"""Public functions that choose among ops, and what calls them for the whole batch if a call of one
looks at values."""
own_functions: list[Callable[..., Any]] = []
"""What calls a user's autograd.Function, if something stands here."""
WHOLE: dict[str, Callable[[Call], bool]] = {}
"""Composites that have a rule: whether a call of one is to be kept whole."""

ITEM = (
    "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling "
    ".item() on a Tensor, please try to rewrite what you're doing with other operations. If error "
    "is occurring somewhere inside PyTorch internals, please file a bug report."
)
CONTROL_FLOW = (
    "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We "
    "don't support that yet, please shout over at https://github.com/pytorch/functorch/issues/257 ."
)
DYNAMIC = (
    "vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap "
    "over aten::{name}. Please voice your support in "
    "https://github.com/pytorch/functorch/issues/256"
)


class RefusedError(RuntimeError):
    """The function looks at values, or at a shape that depends on them: they differ in a batch."""


# Users see the class that torch raises.
RefusedError.__qualname__ = RefusedError.__name__ = "RuntimeError"
RefusedError.__module__ = "builtins"


class Batch(NamedTuple):
    """A payload of this level."""

    value: Any
    batched: bool


class Unbatched(NamedTuple):
    """What a rule gives when its result is the same for the whole batch."""

    result: Any


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Make a function the rule of ops."""

    def decorate(fn: Rule) -> Rule:
        for name in names:
            RULES[name] = fn
        return fn

    return decorate


def whole(*names: str, when: Callable[[Call], bool]) -> Callable[[Rule], Rule]:
    """Make a function the rule of composites. Calls of which `when` is true are not opened."""

    def decorate(fn: Rule) -> Rule:
        for name in names:
            RULES[name] = fn
            WHOLE[name] = when
        return fn

    return decorate


class Call:
    """A call of an op, as a rule sees it.

    `values` are the arguments with payloads in place of tensors, `batched` says which of them have
    the batch dimension (a tuple for a list of tensors), `metas` are the arguments' metas as the
    function sees them.
    """

    __slots__ = (
        "any_batched", "args", "batched", "level", "metas", "op", "ran", "results", "values",
    )  # fmt: skip

    def __init__(self, level: BatchLevel, op: Op, args: tuple[Any, ...]) -> None:
        self.ran: list[tuple[tuple[Any, ...], Any]] = []
        """Every run of the op itself: its arguments and its result."""
        self.level = level
        self.op = op
        self.args = args
        values: list[Any] = []
        batched: list[Any] = []
        self.any_batched = False
        for a in args:
            if isinstance(a, TensorBase):
                value, flag = level.batch_of(a)
                values.append(value)
                batched.append(flag)
                self.any_batched |= flag
            elif type(a) is tuple and any(isinstance(x, TensorBase) for x in a):
                pairs = [level.batch_of(x) if isinstance(x, TensorBase) else (x, False) for x in a]
                values.append(tuple(p[0] for p in pairs))
                batched.append(tuple(p[1] for p in pairs))
                self.any_batched |= any(p[1] for p in pairs)
            else:
                values.append(a)
                batched.append(False)
        self.values = tuple(values)
        self.batched = tuple(batched)
        self.metas = metas_of(op, args)
        self.results: tuple[TensorMeta, ...] = ()

    @property
    def size(self) -> int:
        return self.level.size

    def run(self, *args: Any) -> Any:
        """The op itself, on other arguments."""
        result = dispatch.entry.run(self.op, args)
        self.ran.append((args, result))
        return result

    def full(self, i: int) -> Any:
        """Argument `i` with the batch dimension, read again and again if it has none."""
        value = self.values[i]
        if self.batched[i] or not isinstance(value, TensorBase):
            return value
        return self.level.full(value)

    def room(self, i: int) -> Any:
        """A value laid out as argument `i` with the batch dimension, whatever is in it."""
        return self.values[i] if self.batched[i] else self.level.room(self.values[i]._meta)

    def aligned(self, i: int, rank: int) -> Any:
        """Argument `i` so that its batch dimension is the first of `rank + 1` dimensions; a value
        without one is left to broadcast."""
        value = self.values[i]
        if not self.batched[i]:
            return value
        return padded_rank(value, rank)

    def rank(self, i: int) -> int:
        return int(self.metas[i].ndim)


def padded_rank(value: Any, rank: int) -> Any:
    """A batched value with dimensions of size one after the first, to have `rank + 1` of them."""
    shape = value._meta.shape
    missing = rank + 1 - len(shape)
    if missing <= 0:
        return value
    return value.view(shape[0], *(1,) * missing, *shape[1:])


def logical(meta: TensorMeta) -> TensorMeta:
    """A batched value as the function sees it."""
    return make_meta(meta.dtype, tuple(meta.shape[1:]), meta.strides[1:], meta.device)


class BatchLevel(Level):
    """One `vmap` while its function runs."""

    name = "vmap"

    def __init__(self, size: int, randomness: str) -> None:
        super().__init__()
        self.size = size
        self.randomness = randomness
        self._asked: Call | None = None
        """The composite that was last asked about: it may come next."""

    # ---- payloads --------------------------------------------------------------------------------

    def batch_of(self, t: Any) -> Batch:
        """The payload of any tensor: those of other levels stand for themselves."""
        found: Batch | None = self.payload_of(t)
        return Batch(t, False) if found is None else found

    def batched(self, value: Any, own: bool = True) -> Any:
        """A tensor that stands for the slices of `value` along its first dimension."""
        return self.wrap(Batch(value, True), logical(value._meta), own)

    def lift(self, t: Any) -> Any:
        return self.wrap(Batch(t, False), t._meta, own=False)

    def full(self, value: Any) -> Any:
        """A value without a batch dimension with one, read again and again."""
        return value.unsqueeze(0).expand(self.size, *value._meta.shape)

    def room(self, meta: TensorMeta) -> Any:
        """A new value with the batch dimension, each part laid out as `meta` says."""
        shape, strides = (self.size, *meta.shape), (max(meta.span, 1), *meta.strides)
        return empty_strided(shape, strides, dtype=meta.dtype, device=meta.device)

    def detach(self, payload: Any) -> Any:
        value = payload.value
        if not value._needs_grad and cell_of(value) is None:
            return payload
        return Batch(value.detach(), payload.batched)

    def landed(self, payload: Any) -> Any:
        return None if payload.batched else payload.value

    # ---- calls -----------------------------------------------------------------------------------

    def takes(self, op: Op, args: tuple[Any, ...]) -> bool:
        asked = WHOLE.get(op.qualified)
        if asked is None:
            return False
        call = self._asked = Call(self, op, args)
        return not call.any_batched or asked(call)

    def compute(self, op: Op, args: tuple[Any, ...]) -> Any:
        call = self._asked
        self._asked = None
        if call is None or call.args is not args:
            call = Call(self, op, args)
        if op.kind == op_.RANDOM:
            return self._wrapped(call, KINDS[op_.RANDOM](call))
        if not call.any_batched:
            made = call.run(*call.values)
            self.learn(call, None, made)
            return self._wrapped(call, Unbatched(made))
        if op.data_dependent:
            raise RefusedError(DYNAMIC.format(name=op.name))
        if op.meta is not None and op.kind != op_.COMPOSITE:
            call.results = results_of(op, call.metas, args)
        found = RULES.get(op.qualified) or KINDS[op.kind]
        made = found(call)
        self.learn(call, found, made)
        return self._wrapped(call, made)

    def learn(self, call: Call, found: Rule | None, made: Any) -> None:
        """Told what a rule made of a call (None: nothing depends on the batch)."""

    def _wrapped(self, call: Call, result: Any) -> Any:
        if isinstance(result, TensorBase):
            return self.batched(as_planned(result, call, 0))
        if type(result) is Unbatched:
            return _each(result.result, lambda r, _: self.wrap(Batch(r, False), r._meta))
        return _each(result, lambda r, i: self.batched(as_planned(r, call, i)))

    def view(self, op: Op, args: tuple[Any, ...], results: tuple[Any, ...]) -> list[Any]:
        value, batched = self.payload_of(args[0])
        if not batched:
            found = dispatch.entry.run(op, (value, *args[1:]))
        else:
            found = VIEWS[op.qualified](value, args, results)
        parts = found if isinstance(found, tuple) else (found,)
        return [Batch(p, batched) for p in parts]

    def reread(self, payload: Any, meta: TensorMeta, offset: int, want: TensorMeta) -> Any:
        value, batched = payload
        if want.dtype is not meta.dtype:
            value = value.view(want.dtype)
        shape, strides = tuple(want.shape), want.strides
        if batched:
            shape = (value._meta.shape[0], *shape)
            strides = (value._meta.strides[0], *strides)
        value = strided_view(value, shape, strides, offset)
        return Batch(value if want.flipped == meta.flipped else flip_view(value), batched)

    def function(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], recorded: bool
    ) -> Any:
        if not any(isinstance(a, TensorBase) and self.owns(a) for a in args):
            return super().function(function, args, kwargs, recorded)
        for call in own_functions:
            return call(self, function, args, kwargs, recorded)
        return NotImplemented

    def front(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        instead = FRONTS.get(function)
        if instead is None:
            return super().front(function, args, kwargs)
        try:
            return super().front(function, args, kwargs)
        except RefusedError as error:
            found = instead(self, function, args, kwargs)
            if found is NotImplemented:
                raise error from None
            return found

    # ---- writes ----------------------------------------------------------------------------------

    def write(self, target: Any, source: Any) -> None:
        value, batched = self.batch_of(target)
        given, many = self.batch_of(source) if isinstance(source, TensorBase) else (source, False)
        if many and not batched:
            value = self._spread(target)
        elif value._storage.saved and self._move(target):
            value = self.batch_of(target).value
        if many:
            given = padded_rank(given, target._meta.ndim)
        dispatch.entry.run(_COPY, (value, given), dispatch.InPlace(value))

    def _move(self, target: Any) -> bool:
        """Give a tensor other memory, if nobody outside sees it: a backward pass outside needs the
        values that are about to be overwritten."""
        cell = cell_of(target)
        if cell is None or cell.level is not self or not cell.own:
            return False
        value, batched = cell.payload
        moved = value.clone()
        if moved._meta is not value._meta:
            return False
        cell.replace(Batch(moved, batched))
        return True

    def _spread(self, target: Any) -> Any:
        """Make a tensor of this level one for each of the batch: its values are about to differ."""
        cell = cell_of(target)
        if cell is None or cell.level is not self or not cell.own:
            raise RuntimeError(
                "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists "
                "a Tensor `other` in extra_args that has more elements than `self`. This happened "
                "due to `other` being vmapped over but `self` not being vmapped over at level "
                f"{self.depth}. Please try to use out-of-place operators instead of inplace "
                "arithmetic. If said operator is being called inside the PyTorch framework, please "
                "file a bug report instead."
            )
        self._spread_cell(cell)
        return self.batch_of(target).value

    def _spread_cell(self, cell: Cell) -> None:
        value = cell.payload.value
        cell.replace(Batch(self.room(value._meta).copy_(value), True))

    # ---- values ----------------------------------------------------------------------------------

    def read(self, t: Any) -> Any:
        value, batched = self.batch_of(t)
        if batched:
            raise RefusedError(ITEM)
        return value

    def all_of(self, t: Any) -> Any:
        return self.batch_of(t).value

    def densified(self, tensor: Any) -> Any:
        if not self.owns(tensor) or tensor._needs_grad:
            return tensor
        value, batched = self.batch_of(tensor)
        with self.aside():
            dense = value.to_dense()
        if dense is value:
            return tensor
        return self.batched(dense) if batched else self.wrap(Batch(dense, False), dense._meta)

    def varies(self, tensor: Any) -> bool:
        value, batched = self.batch_of(tensor)
        return batched or super().varies(value)

    def decide(self, t: Any) -> None:
        if self.batch_of(t).batched:
            raise RefusedError(CONTROL_FLOW)

    def show(self, t: Any) -> str:
        value, batched = self.batch_of(t)
        inner = repr(value)
        if not batched:
            return inner
        body = "".join(f"\n    {line}" for line in inner.splitlines())
        return f"BatchedTensor(lvl={self.depth}, bdim=0, value={body}\n)"


def _each(result: Any, wrap: Callable[[Any, int], Any]) -> Any:
    if not isinstance(result, tuple):
        return wrap(result, 0)
    made = [wrap(r, i) for i, r in enumerate(result)]
    return type(result)(*made) if hasattr(result, "_fields") else tuple(made)


def as_planned(r: Any, call: Call, i: int) -> Any:
    """A result in the dtype and shape it has without the batch."""
    if not call.results:
        return r
    want = call.results[i]
    if r._meta.dtype is not want.dtype:
        r = cast(r, want.dtype)
    shape = (call.size, *want.shape)
    return r if tuple(r._meta.shape) == shape else r.expand(shape)
