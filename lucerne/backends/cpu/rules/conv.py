"""Convolutions. The choice of an engine is in `conv.select`."""

from __future__ import annotations

from typing import Any

from lucerne.backends.cpu.conv.problem import Setting, spread
from lucerne.backends.cpu.conv.select import conv_kernel, input_kernel, weight_kernel
from lucerne.backends.cpu.rules.table import rule
from lucerne.ir.graph import Node


def _bias_step(bias: Any) -> int | None:
    return None if bias is None else bias.meta.strides[0]


@rule("conv")
def conv(node: Node) -> Any:
    x, w, bias, *setting = node.args
    y = node.outputs[0]
    arrays = spread(x.meta), spread(w.meta), spread(y.meta)
    return conv_kernel(*arrays, Setting.of(*setting), _bias_step(bias))


@rule("conv_input")
def conv_input(node: Node) -> Any:
    g, w, bias, _, *setting = node.args
    x = node.outputs[0]
    arrays = spread(g.meta), spread(w.meta), spread(x.meta)
    return input_kernel(*arrays, Setting.of(*setting), _bias_step(bias))


@rule("conv_weight")
def conv_weight(node: Node) -> Any:
    g, x, _, *setting = node.args
    w = node.outputs[0]
    arrays = spread(g.meta), spread(x.meta), spread(w.meta)
    return weight_kernel(*arrays, Setting.of(*setting))
