"""A graph as Python source: what a GraphModule runs, and what people read."""

from __future__ import annotations

import enum
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lucerne._src.base.dtype import dtype as DType
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.tensor import api as lu
from lucerne.fx import names
from lucerne.fx.names import Namespace
from lucerne.fx.node import Node, short_dtype, value_of

TransformCodeFunc = Callable[[list[str]], list[str]]

BINARY = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "floordiv": "{} // {}",
    "truediv": "{} / {}", "mod": "{} % {}", "pow": "{} ** {}", "lshift": "{} << {}",
    "rshift": "{} >> {}", "and_": "{} & {}", "or_": "{} | {}", "xor": "{} ^ {}",
    "getitem": "{}[{}]", "matmul": "{} @ {}",
}  # fmt: skip
"""Operators that Python also tries from the right (`1 + x`), by their name in `operator`."""

OPERATORS = {
    "eq": "{} == {}", "ne": "{} != {}", "lt": "{} < {}", "gt": "{} > {}", "le": "{} <= {}",
    "ge": "{} >= {}", "pos": "+{}", "neg": "-{}", "invert": "~{}", **BINARY,
}  # fmt: skip

IN_PLACE = {
    "iadd": "{} += {}", "iand": "{} &= {}", "ifloordiv": "{} //= {}", "ilshift": "{} <<= {}",
    "imod": "{} %= {}", "imul": "{} *= {}", "imatmul": "{} @= {}", "ior": "{} |= {}",
    "ipow": "{} **= {}", "irshift": "{} >>= {}", "isub": "{} -= {}", "itruediv": "{} /= {}",
    "ixor": "{} ^= {}", "setitem": "{}[{}] = {}",
}  # fmt: skip


@dataclass
class PythonCode:
    """Source of a function and the objects its global names mean."""

    src: str
    globals: dict[str, Any]
    imports: dict[str, str] = field(default_factory=dict)
    """For globals that a file could import: the statement."""


def member(base: str, path: str) -> str:
    """`base.path`, with getattr where a part is no identifier (`layers.0`)."""
    for part in path.split("."):
        base = f"{base}.{part}" if part.isidentifier() else f'getattr({base}, "{part}")'
    return base


class CodeGen:
    """Writes the function of a graph. Subclasses may change its head and its return.

    >>> import lucerne as torch
    >>> class Boxed(torch.fx.CodeGen):
    ...     def gen_fn_def(self, free_vars, maybe_return_annotation):
    ...         lines = [f"def forward(self, inputs){maybe_return_annotation}:"]
    ...         return lines[0] + f"\\n    {', '.join(free_vars)}, = inputs"
    ...     def process_inputs(self, inputs):
    ...         return inputs
    >>> traced = torch.fx.symbolic_trace(lambda x, y: x + y)
    >>> traced.graph.set_codegen(Boxed())
    >>> traced.recompile().src.count("= inputs")
    1
    >>> traced([torch.ones(1), torch.ones(1)])
    tensor([2.])
    """

    def __init__(self) -> None:
        self._body_transformer: TransformCodeFunc | None = None
        self._func_name = "forward"

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The head of the function; `free_vars` are its parameters, annotated."""
        if not free_vars or free_vars[0] != "self":
            free_vars = ["self", *free_vars]
        return f"def {self._func_name}({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Any, *, repr_fn: Callable[[Any], str] = repr) -> str:
        """The return statement."""
        return f"return {repr_fn(output_args)}"

    def process_inputs(self, *args: Any) -> Any:
        """What the graph's placeholders get when the function is called with `args`."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """What the function returns when the graph's output is `outputs`."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Names the function uses besides those of the nodes."""
        return []

    def _gen_python_code(
        self, nodes: Iterable[Node], root_module: str, namespace: Namespace, **options: Any
    ) -> PythonCode:
        return _Writer(self, list(nodes), root_module, namespace, **options).write()


class _Writer:
    """One run over a graph."""

    def __init__(
        self,
        codegen: CodeGen,
        nodes: list[Node],
        root: str,
        namespace: Namespace,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        wrap: Any = None,
    ) -> None:
        self.codegen, self.nodes, self.root, self.namespace = codegen, nodes, root, namespace
        self.verbose, self.strides, self.devices = verbose, include_stride, include_device
        self.wrap = wrap
        self.parameters: list[str] = []
        self.body: list[str] = []
        self.returns = ""
        self.wrapped: dict[str, None] = {}
        self.globals: dict[str, Any] = {names.ROOT: names.package()}
        self.imports = {names.ROOT: f"import {names.PACKAGE} as {names.ROOT}"}
        self.last_users = _last_users(nodes)
        for name, (statement, found) in names.SUPPLIED.items():
            self.globals[name] = found
            self.imports[name] = statement

    def write(self) -> PythonCode:
        for node in self.nodes:
            if self.verbose:
                self._tell_origin(node)
            self._node(node)
        body = self.body or ["pass\n"]
        wraps = ""
        if self.wrapped:
            name = self.name_of("wrap", self.wrap)
            wraps = "\n".join(f'{name}("{n}")' for n in self.wrapped)
        if self.codegen._body_transformer is not None:
            body = self.codegen._body_transformer(body)
        for name, found in self.codegen.additional_globals():
            self.name_of(name, found)
        head = self.codegen.gen_fn_def(self.parameters, self.returns)
        code = "\n".join("    " + line for line in "".join(body).split("\n"))
        return PythonCode(f"\n{wraps}\n\n{head}\n{code}", self.globals, self.imports)

    # ---- names of things outside the graph ------------------------------------------------------

    def name_of(self, hint: str, found: Any) -> str:
        """The name by which the code knows an object that is no value of the graph."""
        if getattr(found, "__module__", None) != "__main__":
            path = names.public_path(found)
            if path is not None and found is not lu.device:
                return f"{names.ROOT}.{path}"
        for name in names.SUPPLIED:
            if self.globals[name] is found:
                return name
        name = self.namespace.create_name(hint, found)
        if self.globals.setdefault(name, found) is not found:
            raise AssertionError(f"{name} means {self.globals[name]} and {found}")
        self._import(name, found)
        return name

    def _import(self, name: str, found: Any) -> None:
        module, own = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
        if isinstance(found, types.ModuleType):
            self.imports[name] = f"import {found.__name__} as {name}"
        elif module and own and "<" not in own:
            first = own.partition(".")[0]
            tail = own[len(first) :]
            alias = f"from {module} import {first} as {name}"
            self.imports[name] = f"{alias}\n{name} = {name}{tail}" if tail else alias

    def annotation(self, kind: Any) -> str:
        """A type, with the names it is made of known to the code."""
        if kind == ():
            return "()"
        if isinstance(kind, types.UnionType):
            return "|".join(map(self.annotation, typing.get_args(kind)))
        origin = typing.get_origin(kind)
        if origin is not None:
            alias = getattr(typing, getattr(kind, "_name", None) or "", None)
            if type(kind) is not types.GenericAlias and alias is not None:
                base = self.name_of(f"typing.{kind._name}", alias)
            elif origin is typing.Union:
                base = self.name_of("typing.Union", typing.Union)
            else:
                base = self.name_of(names.type_name(origin), origin)
            inner = ",".join(map(self.annotation, typing.get_args(kind)))
            return f"{base}[{inner}]" if inner else base
        return self.name_of(names.type_name(kind), kind)

    # ---- arguments ------------------------------------------------------------------------------

    def value(self, a: Any) -> str:
        """An argument as source."""
        if isinstance(a, Node):
            return repr(a)
        if isinstance(a, tuple):
            if hasattr(a, "_fields"):
                name = self.name_of(names.qualified_name(type(a)), type(a))
                return f"{name}{tuple(a)!r}"
            inner = ", ".join(map(self.value, a))
            return f"({inner},)" if len(a) == 1 else f"({inner})"
        if isinstance(a, list):
            return f"[{', '.join(map(self.value, a))}]"
        if isinstance(a, dict):
            return "{" + ", ".join(f"{k!r}: {self.value(v)}" for k, v in a.items()) + "}"
        if isinstance(a, slice):
            return f"slice({', '.join(map(self.value, (a.start, a.stop, a.step)))})"
        if isinstance(a, enum.Enum):
            return f"{self.name_of(type(a).__name__, type(a))}.{a.name}"
        if isinstance(a, DType):
            return f"{names.ROOT}.{a.name}"
        if isinstance(a, type) or (callable(a) and not isinstance(a, lu.Tensor)):
            return self.name_of(names.qualified_name(a), a)
        return repr(a)

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        given = [self.value(a) for a in args]
        given += [f"{k} = {self.value(v)}" for k, v in kwargs.items()]
        return ", ".join(given)

    # ---- nodes ----------------------------------------------------------------------------------

    def _node(self, node: Node) -> None:
        note = self._note(node)
        if node.op == "placeholder":
            default = f" = {self.value(node.args[0])}" if node.args else ""
            self.parameters.append(f"{node.target}{note}{default}")
            bare = node.target.replace("*", "")
            if bare != node.name:
                self.body.append(f"{node} = {bare}\n")
        elif node.op == "output":
            if node.type is not None:
                self.returns = f" -> {self.annotation(node.type)}"
            self.body.append(self._return(node) + "\n")
        else:
            self.body.append(self._statement(node, f"{node}{note}") + self._frees(node))

    def _return(self, node: Node) -> str:
        generate: Any = self.codegen.generate_output
        if generate.__func__ is CodeGen.generate_output:
            return generate(node.args[0], repr_fn=self.value)
        return generate(node.args[0])

    def _statement(self, node: Node, left: str) -> str:
        args, kwargs, target = node.args, node.kwargs, node.target
        if node.op == "get_attr":
            return f"{left} = {member(self.root, target)}"
        if node.op == "call_module":
            return f"{left} = {member(self.root, target)}({self.arguments(args, kwargs)})"
        if node.op == "call_method":
            call = self.arguments(args[1:], kwargs)
            return f"{left} = {member(self.value(args[0]), target)}({call})"
        return self._function(target, args, kwargs, node, left)

    def _function(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], node: Node, left: str
    ) -> str:
        if getattr(target, "__module__", "") == "_operator":
            given = [self.value(a) for a in args]
            if target.__name__ in OPERATORS:
                return f"{left} = {OPERATORS[target.__name__].format(*given)}"
            if target.__name__ in IN_PLACE:
                return f"{IN_PLACE[target.__name__].format(*given)};  {left} = {given[0]}"
        name = self.name_of(names.qualified_name(target), target)
        plain = len(args) == 2 and isinstance(args[1], str) and args[1].isidentifier()
        if target is getattr and plain:
            return f"{left} = {member(self.value(args[0]), args[1])}"
        if node.meta.get("is_wrapped"):
            self.wrapped.setdefault(name)
        return f"{left} = {name}({self.arguments(args, kwargs)})"

    def _frees(self, node: Node) -> str:
        """Drop what nobody reads any more, so that memory is used again at once."""
        done = [*self.last_users.get(node, ())]
        if not node.users:
            done.append(node)
        return f";  {' = '.join([*map(repr, done), 'None'])}\n" if done else "\n"

    # ---- what is known about values -------------------------------------------------------------

    def _note(self, node: Node) -> str:
        if self.verbose:
            noted = self._shape_note(value_of(node))
            if noted:
                return f': "{noted}"'
        return "" if node.type is None else f" : {self.annotation(node.type)}"

    def _shape_note(self, found: Any) -> str:
        if not hasattr(found, "dtype") or not hasattr(found, "shape"):
            return ""
        text = f"{short_dtype(found.dtype)}{list(found.shape)}"
        if self.strides:
            stride = found.strides if isinstance(found, TensorMeta) else found.stride
            text += str(list(stride() if callable(stride) else stride))
        if self.devices and hasattr(found, "device"):
            text += str(found.device)
        return text

    def _tell_origin(self, node: Node) -> None:
        """A comment with the line of the user's code, when it changes."""
        if node.op in ("placeholder", "output"):
            return
        told = f"\n# {_origin(node.stack_trace)}\n"
        if told != getattr(self, "_told", None):
            self._told = told
            self.body.append(told)


def _origin(trace: str | None) -> str:
    lines = (trace or "").strip().split("\n")
    for at in range(len(lines) - 2, -1, -1):
        found = re.match(r'^File "(.+)", line (\d+), in (.+)$', lines[at].strip())
        if found:
            file, line, function = found.groups()
            return f"File: {file}:{line} in {function}, code: {lines[at + 1].strip()}"
    return "No stacktrace found for following nodes"


def _last_users(nodes: list[Node]) -> dict[Node, list[Node]]:
    """For each node, the values whose last reader it is."""
    seen: set[Node] = set()
    found: dict[Node, list[Node]] = {}
    for user in reversed(nodes):
        for value in user.all_input_nodes:
            if value not in seen:
                seen.add(value)
                found.setdefault(user, []).append(value)
    return found


def numbered(code: str) -> Iterator[str]:
    """Lines of code with their numbers."""
    for number, line in enumerate(code.split("\n"), 1):
        yield f"{number:4} {line}"
