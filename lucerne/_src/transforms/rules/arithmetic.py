"""Rules about numbers. Exact ones hold for every bit of every operand, nans (as nans) included."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir import promote
from lucerne._src.ir.define import reduced_dims
from lucerne._src.ir.graph import Node, Value, given_metas, operands
from lucerne._src.ir.op import Op
from lucerne._src.ops.pointwise.arithmetic import add2, mul, sub2
from lucerne._src.ops.view.reshape import view_shape
from lucerne._src.transforms.rules.rule import Answer, Look, NewNode, Rule

_ADD2: Op = add2.op  # type: ignore[attr-defined]
_SUB2: Op = sub2.op  # type: ignore[attr-defined]
_MUL: Op = mul.op  # type: ignore[attr-defined]
_VIEW: Op = view_shape.op  # type: ignore[attr-defined]


def _category(node: Node) -> int:
    category: int = node.outputs[0].meta.dtype.category
    return category


def _is(number: Any, wanted: int) -> bool:
    return number is not None and type(number) is not complex and number == wanted


def _is_minus_zero(number: Any) -> bool:
    return type(number) is float and number == 0 and math.copysign(1.0, number) < 0


def _beside(look: Look, node: Node, wanted: Any) -> Value | None:
    """The other operand when one of the two is a number that is `wanted`."""
    a, b = node.args[:2]
    if type(a) is Value and wanted(look.number(b)):
        return a
    if type(b) is Value and wanted(look.number(a)):
        return b
    return None


def _mul_one(look: Look, node: Node) -> Answer:
    if _category(node) == dt.COMPLEX:  # (inf + 0j) * (1 + 0j) is inf + nan j
        return None
    return _beside(look, node, lambda x: _is(x, 1))


def _div_one(look: Look, node: Node) -> Answer:
    a, b = node.args
    return a if _category(node) == dt.FLOAT and _is(look.number(b), 1) else None


def _sub_zero(look: Look, node: Node) -> Answer:
    a, b = node.args
    number = look.number(b)
    if _category(node) == dt.COMPLEX or not _is(number, 0):
        return None
    return None if _is_minus_zero(number) else a


def _add_minus_zero(look: Look, node: Node) -> Answer:
    if _category(node) == dt.COMPLEX:
        return None
    wanted = _is_minus_zero if _category(node) == dt.FLOAT else lambda x: _is(x, 0)
    return _beside(look, node, wanted)


def _alpha_one(look: Look, node: Node) -> Answer:
    a, b, alpha = node.args
    if _category(node) not in (dt.INTEGER, dt.FLOAT) or type(alpha) not in (int, float):
        return None
    if alpha == 1:
        return NewNode(_ADD2, (a, b))
    return NewNode(_SUB2, (a, b)) if alpha == -1 else None


def _twice(look: Look, node: Node) -> Answer:
    """The operand of the same op one step earlier."""
    inner = look.producer(node.args[0], node.op.qualified)
    return None if inner is None else inner.args[0]


def _again(look: Look, node: Node) -> Answer:
    inner = look.producer(node.args[0], node.op.qualified)
    return None if inner is None else node.args[0]


def _same_operands(look: Look, node: Node) -> Answer:
    a, b = node.args
    return a if a is b else None


def _choose_known(look: Look, node: Node) -> Answer:
    condition, a, b = node.args
    number = look.number(condition)
    if number is not None:
        a = b = a if number else b
    return a if a is b and type(a) is Value else None


def _number_operand(look: Look, node: Node) -> Answer:
    """A tensor with one value everywhere as a number, if that computes in the same types."""
    op = node.op
    if not look.any_numbers or op.numbers == "none" or len(operands(node.args)) < 2:
        return None
    first = 1 if op.numbers == "rest" else 0
    changed = tuple(
        a if k < first or kind != op_.TENSOR else _as_number(look, a)
        for k, (kind, a) in enumerate(zip(op.kinds, node.args, strict=True))
    )
    unchanged = all(a is b for a, b in zip(changed, node.args, strict=True))
    if unchanged or all(type(a) is not Value for a in changed):
        return None
    common = _types(op, node.args)
    alike = all(
        _rounds_alike(op, place, common, number, a)
        for place, (number, a) in enumerate(zip(changed, node.args, strict=True))
    )
    return NewNode(op, changed) if alike and _types(op, changed) is common else None


def _as_number(look: Look, a: Any) -> Any:
    number = look.number(a) if type(a) is Value else None
    return a if number is None or type(number) is complex else number


def _types(op: Op, args: tuple[Any, ...]) -> Any:
    """The dtypes an element-wise op computes in; 16-bit types count as themselves."""
    metas = [
        m
        for m, kind in zip(given_metas(op, args), op.kinds, strict=True)
        if kind == op_.TENSOR and m is not None
    ]
    return promote.common_type(op.promote, metas)


def _rounds_alike(op: Op, place: int, common: dt.dtype, number: Any, a: Any) -> bool:
    """Whether a number reaches the body as the tensor does that it stands for."""
    if number is a or a.meta.dtype is common:  # of the common type: there is nothing to lose
        return True
    rounded = promote.rounding(op, place, common, a.meta)
    return promote.rounding(op, place, common, number) is rounded


def _sum_expanded(look: Look, node: Node) -> Answer:
    """The sum of a tensor over dimensions along which it only repeats."""
    named = node.op.named(node.args)
    spread = look.producer(named["input"], "expand")
    if spread is None:
        return None
    source, wide = spread.args[0], named["input"].meta
    out, dims = node.outputs[0].meta, reduced_dims(named["dim"], wide.ndim)
    lead = wide.ndim - source.meta.ndim
    if any(d >= lead and source.meta.shape[d - lead] != 1 for d in dims):
        return None
    if any(d not in dims and wide.shape[d] != (1, *source.meta.shape)[max(d - lead + 1, 0)]
           for d in range(wide.ndim)):  # fmt: skip
        return None
    if out.dtype is not source.meta.dtype or out.shape != source.meta.shape:
        return None
    count = math.prod(wide.shape[d] for d in dims)
    return NewNode(_MUL, (source, count)) if count < 1 << 24 else None


def _exact_sum_expanded(look: Look, node: Node) -> Answer:
    return _sum_expanded(look, node) if _category(node) == dt.INTEGER else None


def _fold_ones(look: Look, node: Node) -> Answer:
    """A fold over dimensions of size one."""
    named = node.op.named(node.args)
    meta, out = named["input"].meta, node.outputs[0].meta
    dims = reduced_dims(named["dim"], meta.ndim)
    if out.dtype is not meta.dtype or out.numel != meta.numel or not meta.contiguous:
        return None
    if any(meta.shape[d] != 1 for d in dims if meta.ndim):
        return None
    return NewNode(_VIEW, (named["input"], tuple(out.shape)))


def _exact_fold_ones(look: Look, node: Node) -> Answer:
    return _fold_ones(look, node) if _category(node) == dt.INTEGER else None


RULES = (
    Rule("mul_one", ("mul",), _mul_one, True,
         "x * 1 is x for every real number, nan, infinity and -0.0; for bools it is x and True"),
    Rule("div_one", ("true_divide",), _div_one, True, "x / 1 is x"),
    Rule("sub_zero", ("sub2",), _sub_zero, True,
         "x - 0.0 is x: -0.0 - 0.0 is -0.0. Not so x - -0.0"),
    Rule("add_minus_zero", ("add2",), _add_minus_zero, True,
         "x + -0.0 is x; whole numbers and bools have one zero only"),
    Rule("alpha_one", ("add_scaled",), _alpha_one, True,
         "a + 1 * b rounds once, as a + b; a + -1 * b as a - b"),
    Rule("neg_neg", ("neg", "logical_not", "bitwise_not"), _twice, True,
         "the sign (or the bit) flips twice; metas of both ends agree, so no cast is between"),
    Rule("again", ("relu", "abs", "floor", "ceil", "trunc", "round_even"), _again, True,
         "doing it a second time changes nothing"),
    Rule("same_operands", ("maximum", "minimum", "fmax", "fmin", "bitwise_and", "bitwise_or"),
         _same_operands, True, "of two equal operands one is the result, a nan too"),
    Rule("choose_known", ("choose",), _choose_known, True,
         "the condition is the same everywhere, or both choices are"),
    Rule("exact_sum_expanded", ("sum",), _exact_sum_expanded, True,
         "n equal whole numbers sum to n times one, wrapped around in the same way"),
    Rule("sum_expanded", ("sum",), _sum_expanded, False,
         "n equal numbers sum to n times one: one rounding instead of many"),
    Rule("fold_ones", ("amax", "amin"), _fold_ones, True, "the extreme of one element is it"),
    Rule("sum_one", ("sum",), _exact_fold_ones, True,
         "the sum of one whole number is it; of one float it is that and 0.0, which -0.0 is not"),
    Rule("product_one", ("prod_dim",), _fold_ones, True, "the product of one number is it"),
    Rule("number_operand", (op_.POINTWISE,), _number_operand, True,
         "a tensor with one value everywhere is that number, if the op computes in the same type"),
)  # fmt: skip
