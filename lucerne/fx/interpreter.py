"""Interpreter: runs a graph node by node. Transformer: runs it to make another graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lucerne.fx.graph import Graph
from lucerne.fx.graph_module import GraphModule
from lucerne.fx.node import Argument, Node, Target, map_arg
from lucerne.fx.proxy import Proxy, TracerBase
from lucerne.nn.modules import Module


class Interpreter:
    """Runs the graph of a module. Override the method of a kind of node to change its meaning.

    >>> import lucerne as torch
    >>> class Loud(torch.fx.Interpreter):
    ...     def call_function(self, target, args, kwargs):
    ...         print(target.__name__)
    ...         return super().call_function(target, args, kwargs)
    >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    >>> Loud(traced).run(torch.tensor([-1.0, 1.0]))
    relu
    add
    tensor([1., 2.])
    """

    def __init__(
        self, module: Any, garbage_collect_values: bool = True, graph: Graph | None = None
    ) -> None:
        self.module = module
        self.graph: Graph = graph if graph is not None else module.graph
        self.submodules = dict(module.named_modules())
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.args_iter: Iterator[Any] = iter(())
        self._ends = _last_reads(self.graph) if garbage_collect_values else {}

    def run(
        self,
        *args: Any,
        initial_env: dict[Node, Any] | None = None,
        enable_io_processing: bool = True,
    ) -> Any:
        """What the graph returns for these arguments. Nodes in `initial_env` aren't run."""
        self.env = {} if initial_env is None else dict(initial_env)
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if not self.extra_traceback:
                    raise
                told = _told(error, node)
                if isinstance(error, KeyError):  # its text would be printed as a key
                    raise RuntimeError(*told.args) from error
                raise
            for done in self._ends.get(node, ()):
                del self.env[done]
            if node.op == "output":
                found = self.env[node]
                return self.graph.process_outputs(found) if enable_io_processing else found
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """The same with the arguments in a list, which is emptied so that they can be freed."""
        args = tuple(args_list)
        args_list.clear()
        return self.run(*args)

    def run_node(self, n: Node) -> Any:
        """The value of one node."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    # ---- one method for each kind ---------------------------------------------------------------

    def placeholder(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The next argument; `*args` takes all that are left."""
        if isinstance(target, str) and target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.fetch_attr(target)

    def call_function(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert callable(target)
        return target(*args, **kwargs)

    def call_method(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        owner, *rest = args
        return getattr(owner, str(target))(*rest, **kwargs)

    def call_module(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[0]

    # ---- helpers --------------------------------------------------------------------------------

    def fetch_attr(self, target: Any) -> Any:
        """What the module has at a path."""
        found: Any = self.module
        parts = target.split(".")
        for at, name in enumerate(parts):
            if not hasattr(found, name):
                raise RuntimeError(
                    f"Node referenced nonexistent target {'.'.join(parts[: at + 1])}"
                )
            found = getattr(found, name)
        return found

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a node as values."""
        args, kwargs = self.map_nodes_to_values((n.args, dict(n.kwargs)), n)
        return args, kwargs

    def map_nodes_to_values(self, args: Argument, n: Node) -> Any:
        """Arguments with each node replaced by its value."""

        def value(node: Node) -> Any:
            if node not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {node}! Run Graph.lint() to diagnose "
                    "such issues"
                )
            return self.env[node]

        return _plain(map_arg(args, value))


def _plain(a: Any) -> Any:
    """Lists and dicts that a function may keep and change."""
    if type(a) is tuple:
        return tuple(map(_plain, a))
    if isinstance(a, list):
        return [_plain(x) for x in a]
    if isinstance(a, dict):
        return {k: _plain(v) for k, v in a.items()}
    return a


def _last_reads(graph: Graph) -> dict[Node, list[Node]]:
    seen: set[Node] = set()
    found: dict[Node, list[Node]] = {}
    for user in reversed(graph.nodes):
        for value in user.all_input_nodes:
            if value not in seen:
                seen.add(value)
                found.setdefault(user, []).append(value)
    return found


def _told(error: Exception, node: Node) -> Exception:
    """The error with the node it happened in."""
    told = f"While executing {node.format_node()}"
    told += f"\nOriginal traceback:\n{node.stack_trace}"
    told = f"{error.args[0]}\n\n{told}" if error.args else told
    error.args = (told, *error.args[1:])
    return error


class TransformerTracer(TracerBase):
    """Writes what a Transformer's methods do into its new graph."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.tensor_attrs: dict[Any, str] = {}

    def is_leaf_module(self, _: Any, __: str) -> bool:
        return True


class Transformer(Interpreter):
    """Runs a graph with proxies, so that its methods say what each node becomes.

    >>> import lucerne as torch
    >>> class Swap(torch.fx.Transformer):
    ...     def call_function(self, target, args, kwargs):
    ...         if target is torch.relu:
    ...             target = torch.tanh
    ...         return super().call_function(target, args, kwargs)
    >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x))
    >>> print(Swap(traced).transform().graph)
    graph():
        %x : [num_users=1] = placeholder[target=x]
        %tanh : [num_users=1] = call_function[target=torch.tanh](args = (%x,), kwargs = {})
        return tanh
    """

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer = TransformerTracer(self.new_graph)
        self.tracer.root = module  # type: ignore[attr-defined]

    def placeholder(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        default = args[0] if args else ...
        return Proxy(self.new_graph.placeholder(str(target), default_value=default), self.tracer)

    def get_attr(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_function(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def call_module(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The new module."""
        result = self.run(enable_io_processing=False)
        if result is not None:
            old = self.graph.output_node()
            values = self.tracer.create_arg(result)
            made = self.new_graph.output(values, type_expr=old.type)
            made.meta.update(old.meta)
        root: Any = self.module if isinstance(self.module, Module) else {}
        return GraphModule(root, self.new_graph)

    def run_node(self, n: Node) -> Any:
        found = super().run_node(n)
        if isinstance(found, Proxy) and n.op != "output":
            for key, value in n.meta.items():
                found.node.meta.setdefault(key, value)
        return found
