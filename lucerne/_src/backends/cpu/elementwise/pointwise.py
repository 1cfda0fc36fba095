"""Recipes of pointwise ops: the op's scalar body between loads and stores of the right dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lucerne._src.backends.cpu.elementwise import flat
from lucerne._src.backends.cpu.elementwise.access import Element, Parts, moving_cost
from lucerne._src.backends.cpu.elementwise.plan import loop_kernel, no_work
from lucerne._src.backends.cpu.elementwise.recipe import Recipe, Round
from lucerne._src.backends.cpu.elementwise.space import UNIT
from lucerne._src.backends.cpu.emit.builder import LLVMFunction, Module
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.machine import COMPUTED, STORED, LlvmScalar, NotTaken, Num
from lucerne._src.backends.cpu.math.storage import pack, unpack
from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir import promote
from lucerne._src.ir.graph import Value as GraphValue
from lucerne._src.ir.meta import NumberMeta, TensorMeta
from lucerne._src.ir.scalar.protocol import ScalarValue as Operand


@dataclass(frozen=True)
class PointwiseSource:
    """Where one argument of a body comes from: a tensor, a number of the call, or a static."""

    kind: str
    """"tensor", "number", "weak" (a number that keeps its own type) or "static"."""
    dtype: dt.dtype | None = None
    """The stored dtype of a tensor."""
    target: dt.dtype | None = None
    """The compute dtype in which the body sees it."""
    rounded: dt.dtype | None = None
    """The 16-bit type it is rounded to first."""
    letter: str = ""
    value: Any = None

    @property
    def key(self) -> Any:
        names = [t.name if t else "" for t in (self.dtype, self.target, self.rounded)]
        return (self.kind, *names, self.letter, repr(self.value))


def pointwise_kernel(op: op_.Op, args: Sequence[Any], out: TensorMeta) -> Any:
    """The executable of a call of a pointwise op; NotTaken when the machine lacks something.

    `args` as in a graph node: Values with metas where data flows in, statics elsewhere.
    """
    recipe = pointwise_recipe(op, args, out.dtype)
    if not out.numel:
        _write_in_vain(recipe)  # a body may refuse its dtype: it does so for empty tensors as well
        return no_work
    tensors = [a.meta for a in args if type(a) is GraphValue and isinstance(a.meta, TensorMeta)]
    return loop_kernel(recipe, out, tensors, refuse_division)


def refuse_division(status: int, detail: int) -> None:
    raise RuntimeError("ZeroDivisionError")


def _write_in_vain(recipe: Recipe) -> None:
    flat.write_flat(Module(), recipe, UNIT * len(recipe.operands))


def pointwise_recipe(op: op_.Op, args: Sequence[Any], out: dt.dtype) -> Recipe:
    """What a pointwise op computes, for operands of these kinds."""
    sources = body_sources(op, args)
    for t in (out, *(s.dtype for s in sources if s.dtype is not None)):
        if t not in STORED:
            raise NotTaken(f"{op.name} on {t}")
    tensors = [s for s in sources if s.kind == "tensor"]
    lanes = _lanes(op, sources, out)

    def prepare(f: LLVMFunction, numbers: list[Parts]) -> list[Num]:
        return _ready_numbers(LlvmScalar(f, lanes), sources, numbers)

    def compute(f: LLVMFunction, visit: Round) -> list[Parts]:
        machine = LlvmScalar(f, lanes)
        machine.active = visit.mask
        result = run_body(machine, op, _operands(machine, sources, visit))
        if machine.failed is not None:
            visit.fail(machine.failed)
        return [to_parts(machine, result, out)]

    heavy = op.cost == op_.HEAVY or op.namespace == "special"
    light = op.cost in (op_.CHEAP, op_.LIGHT)
    inputs = tuple(element_of(s.dtype) for s in tensors if s.dtype is not None)
    return Recipe(
        key=("pointwise", op, tuple(s.key for s in sources), out.name),
        outputs=(element_of(out),),
        inputs=inputs,
        lanes=lanes,
        compute=compute,
        prepare=prepare,
        numbers="".join(s.letter for s in sources),
        unroll=2 if light else 0 if heavy else 1,
        cost=moving_cost(element_of(out), *inputs) if light else 30.0 if heavy else 4.0,
    )


def run_body(machine: LlvmScalar, op: op_.Op, operands: Sequence[Any]) -> Any:
    """The op's body on operands in signature order (`Operand`s and statics): a Num or a number."""
    body = op_.positional_body(op)
    try:
        result = body(*operands)
    except (NotImplementedError, RuntimeError, TypeError) as problem:
        # The reference backend says it in the op's own words when it runs the call.
        raise NotTaken(f"{op.qualified}: {problem}") from problem
    return result.raw if type(result) is Operand else result


# ---- operands -----------------------------------------------------------------------------------


def body_sources(op: op_.Op, args: Sequence[Any]) -> list[PointwiseSource]:
    """How each parameter of the body is fetched, by torch's promotion rules."""
    metas = [
        a.meta
        for a, k in zip(args, op.kinds, strict=True)
        if k == op_.TENSOR and type(a) is GraphValue
    ]
    common = promote.common_type(op.promote, metas)
    compute = common.compute
    types = iter(promote.operand_types(op.promote, metas))
    found = []
    for place, (a, kind) in enumerate(zip(args, op.kinds, strict=True)):
        if type(a) is not GraphValue:
            found.append(PointwiseSource("static", value=a))
        elif kind == op_.SCALAR:
            rounded = promote.rounding(op, place, common, a.meta)
            found.append(_runtime_number(type(a.meta), compute, rounded))
        elif isinstance(a.meta, NumberMeta):
            target = next(types)
            letter = number_letter(a.meta.kind, target)
            rounded = promote.rounding(op, place, common, a.meta)
            found.append(PointwiseSource("number", target=target, rounded=rounded, letter=letter))
        else:
            dtype = a.meta.dtype
            rounded = promote.rounding(op, place, common, a.meta)
            keep = None if dtype is rounded else rounded
            found.append(PointwiseSource("tensor", dtype=dtype, target=next(types), rounded=keep))
    return found


def _runtime_number(kind: type, compute: dt.dtype, rounded: dt.dtype | None) -> PointwiseSource:
    """A `Scalar` parameter: of the computing type when it fits there, else as it is."""
    letter = number_letter(kind, compute)
    fits = not (kind is complex and compute.category < dt.COMPLEX) and not (
        kind is float and compute.category < dt.FLOAT
    )
    if not fits:
        return PointwiseSource("weak", target=compute, letter=letter)
    return PointwiseSource("number", target=compute, rounded=rounded, letter=letter)


def number_letter(kind: type, dtype: dt.dtype) -> str:
    """How the block holds a number that becomes `dtype` (huge integers become floats whole)."""
    if kind is complex:
        return "c"
    return "f" if kind is float or dtype.category >= dt.FLOAT else "i"


def _lanes(op: op_.Op, sources: Sequence[PointwiseSource], out: dt.dtype) -> int:
    """Lanes that fill a vector of the computing type."""
    types = [s.target for s in sources if s.target is not None] or [out.compute]
    sizes = [COMPUTED[t].size for t in types if t in COMPUTED]
    lanes = VECTOR_BYTES // max(sizes, default=8)
    return lanes if op.cost in (op_.CHEAP, op_.LIGHT) else min(lanes, VECTOR_BYTES // 4)


def _ready_numbers(
    machine: LlvmScalar, sources: Sequence[PointwiseSource], numbers: list[Parts]
) -> list[Num]:
    """The numbers of the call in every lane, before the loop."""
    ready = []
    feed = iter(numbers)
    for s in sources:
        if s.kind == "weak":
            ready.append(machine.weak_number(s.letter, next(feed)))
        elif s.kind == "number":
            assert s.target is not None
            num = machine.number(s.letter, next(feed), s.target)
            ready.append(num if s.rounded is None else machine.rounded(num, s.rounded))
    return ready


def _operands(machine: LlvmScalar, sources: Sequence[PointwiseSource], visit: Round) -> list[Any]:
    """The arguments of the body for one visit of the loop."""
    loaded, numbers = iter(visit.loaded), iter(visit.ready)
    found: list[Any] = []
    for s in sources:
        if s.kind == "static":
            found.append(s.value)
        elif s.kind == "tensor":
            assert s.dtype is not None
            assert s.target is not None
            num = machine.to(from_parts(machine, next(loaded), s.dtype), s.target)
            found.append(
                Operand(machine, num if s.rounded is None else machine.rounded(num, s.rounded))
            )
        else:
            found.append(Operand(machine, next(numbers)))
    return found


# ---- stored lanes -------------------------------------------------------------------------------


def element_of(dtype: dt.dtype) -> Element:
    """How an element of a dtype lies in memory."""
    return Element(STORED[dtype], 2 if dtype.category == dt.COMPLEX else 1)


def from_parts(machine: LlvmScalar, parts: Parts, dtype: dt.dtype) -> Num:
    """Stored lanes as a number of the machine."""
    return Num(dtype.compute, *(unpack(machine.f, dtype, v) for v in parts))


def to_parts(machine: LlvmScalar, result: Any, dtype: dt.dtype) -> Parts:
    """A result rounded to the stored lanes of `dtype`."""
    num = machine.to(result, dtype.compute)
    if dtype.category == dt.COMPLEX and num.im is None:
        raise NotTaken("a complex result without an imaginary part")
    return tuple(pack(machine.f, dtype, v) for v in (num.re, num.im) if v is not None)
