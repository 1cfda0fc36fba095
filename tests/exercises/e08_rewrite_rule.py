"""Exercise 8: a rule of `simplify`: `abs(neg(x))` is `abs(x)`, where that is true."""

from __future__ import annotations

import lucerne as torch
from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as ops
from lucerne._src.ir.graph import Node
from lucerne._src.transforms import simplify
from lucerne._src.transforms.rules.rule import Answer, Look, NewNode, Rule, meta_of

TOLD = r"AssertionError: abs\(-x\) of uint8 \[1, 200\] became \[1, 200\], eager says \[255, 56\]"


def start() -> object:
    def apply(look: Look, node: Node) -> Answer:
        inner = look.producer(node.args[0], "neg")
        return NewNode(ops.get("abs"), inner.args) if inner is not None else None

    return Rule("abs_neg_start", ("abs",), apply, True, "|-x| is |x|")


def solution() -> object:
    def apply(look: Look, node: Node) -> Answer:
        inner = look.producer(node.args[0], "neg")
        meta = meta_of(inner.args[0]) if inner is not None else None
        if meta is None or meta.dtype.category != dt.FLOAT:
            return None
        return NewNode(ops.get("abs"), inner.args)

    return Rule("abs_neg", ("abs",), apply, True, "floats: neg turns the sign bit, abs clears it")


def check(rule: Rule) -> None:
    simplify.RULES = (*simplify.RULES, rule)
    simplify.rules_for.cache_clear()
    for x in (torch.tensor([1, 200], dtype=torch.uint8), torch.tensor([-0.0, 2.5, -torch.inf])):
        step = torch.compile(lambda t: (-t).abs(), fullgraph=True)
        got, wanted = step(x).tolist(), (-x).abs().tolist()
        kind = str(x.dtype).removeprefix("torch.")
        was = f"abs(-x) of {kind} {x.tolist()} became {got}, eager says {wanted}"
        assert got == wanted, f"{was}: which dtypes have no sign?"
        kept = "neg" in str(step.entries[0].stages.program)
        assert kept == (x.dtype == torch.uint8), f"{kind}: neg is {'there' if kept else 'gone'}"
    assert rule.exact, "it keeps every bit, so bitwise mode may have it"
    assert len(rule.reason) > 15, "say why every bit stays"
