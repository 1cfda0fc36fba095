"""make_fx: a function as a graph of the ops it runs, backward passes and writes included."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from lucerne._src.base.refusals import only
from lucerne._src.capture.trace.decompositions import Decompositions, warn_of_strangers
from lucerne._src.ir.op import Op
from lucerne._src.tensor import api as lu
from lucerne.fx import _pytree as pytree
from lucerne.fx.graph_module import GraphModule
from lucerne.fx.one_ir import Traced, from_ir


def make_fx(
    f: Callable[..., Any],
    decomposition_table: Any = None,
    tracing_mode: str = "real",
    _allow_non_fake_inputs: bool = False,
    *,
    pre_dispatch: bool = False,
    record_module_stack: bool = False,
) -> Callable[..., GraphModule]:
    """A function that runs `f` on its arguments and returns the GraphModule of what was run.

    The graph holds what is executed below autograd, so a gradient taken inside `f` is part of it.
    An op that `decomposition_table` names is replaced by what its function there does.
    Nothing is computed while tracing: values can't be looked at (`tracing_mode` is accepted for
    PyTorch's sake; its modes are one here). Composites are opened into primitives.

    >>> import lucerne as torch
    >>> from lucerne.fx.experimental.proxy_tensor import make_fx
    >>> traced = make_fx(lambda x: torch.softmax(x, dim=0))(torch.ones(3))
    >>> [node.name for node in traced.graph.nodes]
    ['x_1', 'amax', 'sub', 'exp', 'sum_1', 'div', 'output']
    """
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise ValueError(f"tracing_mode must be real, fake or symbolic, received {tracing_mode!r}")

    only(
        "make_fx", "pre_dispatch", pre_dispatch, False,
        "it holds what is executed, below autograd; fx.symbolic_trace records what you wrote",
    )  # fmt: skip
    only(
        "make_fx", "record_module_stack", record_module_stack, False,
        "export keeps the module of each op",
    )  # fmt: skip
    whole = None
    if decomposition_table is not None:
        warn_of_strangers(decomposition_table, exported=False)
        whole = Decompositions(decomposition_table, _apart)

    @functools.wraps(f)
    def traced(*args: Any) -> GraphModule:
        found = Traced(f, args, whole)
        made = from_ir(found.graph, found.held, _names(f, args))
        _returns(made, found)
        return made

    return traced


def _apart(op: Op, args: tuple[Any, ...]) -> bool:
    """No composite is a node."""
    return False


def _names(f: Any, args: tuple[Any, ...]) -> list[str]:
    """A name for each tensor among the arguments, after the parameter it came by."""
    try:
        parameters = list(inspect.signature(f).parameters)
    except (TypeError, ValueError):
        parameters = []
    named: list[str] = []
    for k, arg in enumerate(args):
        base = parameters[k] if k < len(parameters) else f"arg{k}"
        leaves = [x for x in pytree.tree_flatten(arg)[0] if isinstance(x, lu.Tensor)]
        named += [f"{base}_{i}" for i in range(1, len(leaves) + 1)]
    return named


def _returns(made: GraphModule, found: Traced) -> None:
    """Let the module return what the function returned: the same structure."""
    output = made.graph.output_node()
    nodes = iter(output.args[0])
    leaves = [next(nodes) if isinstance(x, lu.Tensor) else x for x in found.leaves]
    output.args = (pytree.tree_unflatten(leaves, found.out_spec),)
    made.recompile()
