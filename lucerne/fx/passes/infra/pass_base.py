"""PassBase: a step from one module to another, with checks around it."""

from __future__ import annotations

from typing import Any, NamedTuple


class PassResult(NamedTuple):
    """The module after a pass, and whether the pass changed it."""

    graph_module: Any
    modified: bool


class PassBase:
    """Override `call`, and `requires` / `ensures` to check what goes in and comes out.

    >>> import lucerne as torch
    >>> class Tanh(PassBase):
    ...     def call(self, graph_module):
    ...         found = graph_module.graph.find_nodes(op="call_function", target=torch.relu)
    ...         for node in found:
    ...             node.target = torch.tanh
    ...         graph_module.recompile()
    ...         return PassResult(graph_module, bool(found))
    >>> Tanh()(torch.fx.symbolic_trace(lambda x: torch.relu(x))).modified
    True
    """

    def __call__(self, graph_module: Any) -> PassResult | None:
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    def call(self, graph_module: Any) -> PassResult | None:
        raise NotImplementedError(f"{type(self).__name__} defines no call(graph_module)")

    def requires(self, graph_module: Any) -> None:
        """Raise if the module is not what the pass needs."""

    def ensures(self, graph_module: Any) -> None:
        """Raise if the module is not what the pass promises."""
