"""Graph: nodes in the order they run, made to be changed."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from lucerne.fx.codegen import IN_PLACE as inplace_methods  # noqa: F401, N811
from lucerne.fx.codegen import OPERATORS as magic_methods  # noqa: F401, N811
from lucerne.fx.codegen import CodeGen, PythonCode, TransformCodeFunc
from lucerne.fx.names import Namespace as _Namespace
from lucerne.fx.names import is_magic, package, public_path, short_name, snake_case
from lucerne.fx.node import LEGAL_OPS, Argument, Node, Target, map_arg


class _Nodes:
    """The nodes of a graph, seen as a list that may change while it is walked."""

    def __init__(self, graph: Graph, backwards: bool = False) -> None:
        self.graph, self.backwards = graph, backwards

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        root = self.graph._root
        at = root._prev if self.backwards else root._next
        while at is not root:
            # A node that is erased meanwhile keeps its links, so the walk goes on behind it.
            if not at._erased:
                yield at
            at = at._prev if self.backwards else at._next

    def __reversed__(self) -> Iterator[Node]:
        return iter(_Nodes(self.graph, not self.backwards))


class _InsertPoint:
    """New nodes are put in by `insert` until the block ends (or for good, without `with`)."""

    def __init__(self, graph: Graph, insert: Callable[[Node], None]) -> None:
        self.graph = graph
        self.before = graph._insert
        graph._insert = insert

    def __enter__(self) -> None:
        """The point was set when this was made."""

    def __exit__(self, *exc: object) -> None:
        self.graph._insert = self.before


class Graph:
    """Nodes in order. Make them with the methods named after their kinds.

    >>> import lucerne as torch
    >>> graph = torch.fx.Graph()
    >>> x = graph.placeholder("x")
    >>> y = graph.call_function(torch.relu, (x,))
    >>> _ = graph.output(y)
    >>> print(graph)
    graph():
        %x : [num_users=1] = placeholder[target=x]
        %relu : [num_users=1] = call_function[target=torch.relu](args = (%x,), kwargs = {})
        return relu
    """

    def __init__(
        self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: Any = None
    ) -> None:
        self._root = Node(self, "", "placeholder", "", (), {})
        self._insert: Callable[[Node], None] = self._root.prepend
        self._len = 0
        self._order: dict[Node, int] | None = None
        self._graph_namespace = _Namespace()
        self._owning_module = owning_module
        self._owners = 0
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras
        self._codegen = CodeGen()
        self._co_fields: dict[str, Any] = {}

    @property
    def owning_module(self) -> Any:
        """The GraphModule this is the graph of, if there is exactly one."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, mod: Any) -> None:
        self._owning_module = mod

    @property
    def nodes(self) -> _Nodes:
        """The nodes in order."""
        return _Nodes(self)

    def output_node(self) -> Node:
        """The node of what is returned."""
        last = self._root._prev
        if last.op != "output":
            raise AssertionError(f"Expected output node, got op={last.op}")
        return last

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """All nodes of a kind, and with a target if one is given."""
        if op == "call_function" and target is None:
            raise AssertionError("target must not be None for call_function op")
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    # ---- making nodes --------------------------------------------------------------------------

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Put a node in at the place set by `inserting_before` (the end, unless told)."""
        args = () if args is None else args
        kwargs = {} if kwargs is None else kwargs
        if op not in LEGAL_OPS:
            raise AssertionError(f"{op!r} is no kind of node: expected one of {LEGAL_OPS}")
        if not isinstance(args, tuple):
            raise AssertionError(f"args must be a tuple, got {type(args)}")
        if not isinstance(kwargs, dict):
            raise AssertionError(f"kwargs must be a dict, got {type(kwargs)}")
        wanted = self._target_to_str(target) if name is None else name
        free = self._graph_namespace.create_name(wanted, None)
        node = Node(self, free, op, target, args, kwargs, type_expr)
        self._graph_namespace.associate_name_with_obj(free, node)
        self._insert(node)
        self._len += 1
        return node

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """A parameter of the function."""
        # torch tells "no default" by inspect.Signature.empty; both are understood.
        none = default_value is ... or getattr(default_value, "__name__", "") == "_empty"
        args = () if none else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """A parameter, buffer or module of the owning module."""
        if self.owning_module is not None and not _has(self.owning_module, qualified_name):
            warnings.warn(
                "Attempted to insert a get_attr Node with no underlying reference in the owning "
                "GraphModule! Call GraphModule.add_submodule to add the necessary submodule, "
                "GraphModule.add_parameter to add the necessary Parameter, or "
                "nn.Module.register_buffer to add the necessary buffer",
                stacklevel=2,
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A call of a module of the owning module."""
        owner = self.owning_module
        if owner is not None and module_name not in dict(owner.named_modules()):
            warnings.warn(
                "Attempted to insert a call_module Node with no underlying reference in the "
                "owning GraphModule! Call GraphModule.add_submodule to add the necessary "
                "submodule",
                stacklevel=2,
            )
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A call of a method: `args` starts with the object."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        """A call of a function."""
        return self.create_node(
            "call_function", the_function, args, kwargs, name=name, type_expr=type_expr
        )

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """What the function returns."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def _target_to_str(self, target: Any) -> str:
        """What a node is named after, from what it calls."""
        name = target if isinstance(target, str) else short_name(target)
        if is_magic(name):
            name = name[2:-2]
        return snake_case(name)

    # ---- changing ------------------------------------------------------------------------------

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """`with graph.inserting_before(node):` new nodes go before it (None: at the start)."""
        if n is None:
            return self.inserting_after(self._root)
        self._mine(n, "before")
        return _InsertPoint(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """`with graph.inserting_after(node):` each new node goes right after it (None: the end)."""
        if n is None:
            return self.inserting_before(self._root)
        self._mine(n, "after")
        return _InsertPoint(self, n.append)

    def _mine(self, n: Node, where: str) -> None:
        if n.graph is not self:
            raise AssertionError(f"Node to insert {where} is not in graph.")

    def erase_node(self, to_erase: Node) -> None:
        """Take a node out; nobody may use it any more."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in "
                f"the graph: {to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        before, behind = to_erase._prev, to_erase._next
        before._next, behind._prev = behind, before
        to_erase._erased = True
        to_erase.args, to_erase.kwargs = (), {}
        self._len -= 1
        self._moved()

    def node_copy(
        self, node: Node, arg_transform: Callable[[Node], Argument] | None = None
    ) -> Node:
        """A node of another graph put in here; `arg_transform` gives our nodes for its inputs."""
        find = arg_transform or (lambda n: n)
        args, kwargs = map_arg(node.args, find), map_arg(node.kwargs, find)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False
    ) -> Any:
        """Put all nodes of another graph in; returns what its output node returns.

        `val_map` says which of its nodes are ours already, and is filled with the rest.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                found = map_arg(node.args[0], lambda n: val_map[n])
                return (found, node) if return_output_node else found
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def eliminate_dead_code(
        self,
        is_impure_node: Callable[[Node], bool] | None = None,
        *,
        impure_random: bool = True,
    ) -> bool:
        """Erase nodes nobody uses that do nothing else; tells whether there were any.

        >>> import lucerne as torch
        >>> traced = torch.fx.symbolic_trace(lambda x: (x + 1, x * 2)[0])
        >>> traced.graph.eliminate_dead_code()
        True
        """
        self.lint()

        def stays(node: Node) -> bool:
            if is_impure_node is not None:
                return is_impure_node(node)
            if node.op == "call_module" and self.owning_module is None:
                return False
            return node.is_impure(impure_random)

        before = len(self.nodes)
        for node in reversed(self.nodes):
            if not node.users and not stays(node):
                self.erase_node(node)
        return len(self.nodes) < before

    def _moved(self) -> None:
        self._order = None

    def _positions(self) -> dict[Node, int]:
        """The place of each node, counted when it is asked for."""
        if self._order is None:
            self._order = {n: i for i, n in enumerate(self.nodes)}
            self._order[self._root] = len(self._order)
        return self._order

    # ---- checking ------------------------------------------------------------------------------

    def lint(self) -> None:
        """Raise if the graph is not in order: owners, unique names, uses after definitions."""
        seen: set[Node] = set()
        taken: set[str] = set()
        for node in self.nodes:
            if node.op not in LEGAL_OPS:
                raise RuntimeError(f"Node {node} had unknown opcode {node.op}!")
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            for used in node.all_input_nodes:
                _check_use(used, node, self, seen)
            if node.name in taken:
                raise RuntimeError(f"Node redefined name {node.name}!")
            seen.add(node)
            taken.add(node.name)
        if self.owning_module is not None:
            for node in self.nodes:
                _check_reference(node, self.owning_module)

    # ---- code and text -------------------------------------------------------------------------

    def set_codegen(self, codegen: CodeGen) -> None:
        """Write the code another way (see CodeGen)."""
        self._codegen = codegen

    def on_generate_code(
        self, make_transformer: Callable[[TransformCodeFunc | None], TransformCodeFunc]
    ) -> contextlib.AbstractContextManager[None]:
        """Change the lines of the body whenever code is made.

        `make_transformer(current)` returns the function that changes them. As a context manager it
        holds inside the block only.
        """
        before = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(before)

        @contextlib.contextmanager
        def restoring() -> Iterator[None]:
            try:
                yield
            finally:
                self._codegen._body_transformer = before

        return restoring()

    def process_inputs(self, *args: Any) -> Any:
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        return self._codegen.process_outputs(out)

    def python_code(
        self,
        root_module: str,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
    ) -> PythonCode:
        """Source of a function that does what the graph does.

        `root_module` is the name by which it finds modules and parameters. `verbose` adds shapes
        (if `meta` has them) and the lines the nodes came from.
        """
        # Names of globals must differ from those of nodes, and nodes keep theirs.
        namespace = _Namespace()
        for node in self.nodes:
            namespace.create_name(node.name, node)
        return self._codegen._gen_python_code(
            self.nodes,
            root_module,
            namespace,
            verbose=verbose,
            include_stride=include_stride,
            include_device=include_device,
            wrap=Wrap.function,
        )

    def __str__(self) -> str:
        returns = [""]
        names: list[str] = []
        lines = [node.format_node(names) for node in self.nodes]
        head = f"graph({', '.join(names)}){returns[0]}:"
        return head + "".join(f"\n    {line}" for line in lines if line is not None)

    def print_tabular(self) -> None:
        """Print the nodes as a table."""
        print(self.tabular())

    def tabular(self) -> str:
        """The nodes as a table: kind, name, target, arguments."""
        rows = [(n.op, n.name, str(n.target), str(n.args), str(n.kwargs)) for n in self.nodes]
        head = ("opcode", "name", "target", "args", "kwargs")
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        rule = tuple("-" * w for w in widths)
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            for row in (head, rule, *rows)
        ]
        return "\n".join(lines)

    # ---- copies --------------------------------------------------------------------------------

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        memo = {} if memo is None else memo
        made = Graph(tracer_cls=self._tracer_cls, tracer_extras=self._tracer_extras)
        made._codegen = self._codegen
        val_map: dict[Node, Node] = {}
        result = made.graph_copy(self, val_map, return_output_node=True)
        if result is not None:
            values, old = result
            copied = made.output(values, type_expr=getattr(old, "type", None))
            copied.meta = dict(old.meta)
        memo[id(self)] = made
        return made

    def __getstate__(self) -> dict[str, Any]:
        """The nodes as plain rows: no depth however long the graph, and no meta."""
        numbers = {node: i for i, node in enumerate(self.nodes)}

        def row(node: Node) -> tuple[Any, ...]:
            def number(n: Node) -> _Ref:
                return _Ref(numbers[n])

            args, kwargs = map_arg(node.args, number), map_arg(node.kwargs, number)
            path = None if isinstance(node.target, str) else public_path(node.target)
            target = node.target if path is None else _Public(path)
            return node.op, node.name, target, args, kwargs, node.type

        return {"rows": [row(n) for n in self.nodes], "codegen": self._codegen}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self._codegen = state["codegen"]
        made: list[Node] = []
        for op, name, target, args, kwargs, kind in state["rows"]:
            args, kwargs = _restored(args, made), _restored(kwargs, made)
            target = _found(target.path) if isinstance(target, _Public) else target
            made.append(self.create_node(op, target, tuple(args), dict(kwargs), name, kind))


class _Ref:
    """A node of a pickled graph: its number."""

    def __init__(self, number: int) -> None:
        self.number = number


class _Public:
    """A function of the package in a pickled graph: where it is found."""

    def __init__(self, path: str) -> None:
        self.path = path


def _found(path: str) -> Any:
    at = package()
    for name in path.split("."):
        at = getattr(at, name)
    return at


def _restored(a: Any, made: list[Node]) -> Any:
    if isinstance(a, _Ref):
        return made[a.number]
    if isinstance(a, tuple):
        items = [_restored(x, made) for x in a]
        return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
    if isinstance(a, list):
        return [_restored(x, made) for x in a]
    if isinstance(a, dict):
        return {k: _restored(v, made) for k, v in a.items()}
    if isinstance(a, slice):
        return slice(*(_restored(x, made) for x in (a.start, a.stop, a.step)))
    return a


class Wrap:
    """Where the tracer leaves `wrap`, which generated code may call."""

    function: Any = None


def _has(module: Any, path: str) -> bool:
    *parents, last = path.split(".")
    for name in parents:
        module = getattr(module, name, None)
        if module is None:
            return False
    return hasattr(module, last)


def _check_use(used: Node, user: Node, graph: Graph, seen: set[Node]) -> None:
    if used.graph is not graph:
        raise RuntimeError(
            f"Argument '{used}' of Node '{user}' does not belong to this Graph, but was used as an "
            "argument! If you are copying nodes from another graph, make sure to use "
            "``arg_transform`` on node_copy() to remap values"
        )
    if used not in seen:
        raise RuntimeError(
            f"Argument '{used}' of Node '{user}' was used before it has been defined! Please check "
            f"that Nodes in the graph are topologically ordered\n{graph}"
        )


def _check_reference(node: Node, module: Any) -> None:
    """Modules, parameters and buffers that nodes name must be there."""
    if node.op not in ("get_attr", "call_module"):
        return
    *parents, last = node.target.split(".")
    for done, name in enumerate([*parents, last]):
        if not hasattr(module, name):
            where = ".".join(node.target.split(".")[:done]) or "the module"
            raise RuntimeError(
                f"Node {node} target {node.target} references nonexistent attribute {name} of "
                f"{where}"
            )
        module = getattr(module, name)
    if node.op == "call_module" and not callable(module):
        raise RuntimeError(f"Node {node} target {node.target} is no module")
