"""Convolutions: which plan serves a call."""

from __future__ import annotations

from typing import Any

from lucerne.backends.cpu.conv import generic
from lucerne.backends.cpu.conv.gather_plan import plan_gather
from lucerne.backends.cpu.conv.problem import Setting, conv_gather, input_gather, spread
from lucerne.backends.cpu.conv.weight_plan import plan_weight
from lucerne.backends.cpu.rules.table import rule
from lucerne.ir.graph import Node


def _bias_step(bias: Any) -> int | None:
    return None if bias is None else bias.meta.strides[0]


@rule("conv")
def conv(node: Node) -> Any:
    x, w, bias, stride, padding, dilation, groups = node.args
    setting = Setting.of(stride, padding, dilation, groups)
    arrays = spread(x.meta), spread(w.meta), spread(node.outputs[0].meta)
    step = _bias_step(bias)
    problem = conv_gather(*arrays, setting, bias is not None)
    return plan_gather(problem, step or 0) or generic.plan_generic(
        generic.CONV, *arrays, setting, step
    )


@rule("conv_input")
def conv_input(node: Node) -> Any:
    g, w, bias, _, stride, padding, dilation, groups = node.args
    setting = Setting.of(stride, padding, dilation, groups)
    y, weight, x = spread(g.meta), spread(w.meta), spread(node.outputs[0].meta)
    step = _bias_step(bias)
    problem = input_gather(y, weight, x, setting, bias is not None)
    return plan_gather(problem, step or 0) or generic.plan_generic(
        generic.INPUT, x, weight, y, setting, step
    )


@rule("conv_weight")
def conv_weight(node: Node) -> Any:
    g, x, _, stride, padding, dilation, groups = node.args
    setting = Setting.of(stride, padding, dilation, groups)
    arrays = spread(x.meta), spread(node.outputs[0].meta), spread(g.meta)
    return plan_weight(*arrays, setting) or generic.plan_generic(
        generic.WEIGHT, *arrays, setting
    )
