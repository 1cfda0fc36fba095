"""GraphModule: a module whose forward is the code of a graph."""

from __future__ import annotations

import copy
import itertools
import linecache
from pathlib import Path
from typing import Any

from lucerne._src.base.homes import own_home
from lucerne._src.tensor import api as lu
from lucerne.fx.codegen import PythonCode
from lucerne.fx.graph import Graph
from lucerne.fx.names import package
from lucerne.nn.modules import Module, Sequential
from lucerne.nn.parameter import Parameter

_numbers = itertools.count()
_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
"""In `meta`: names of attributes that copies carry on."""


class _CodeOnlyModule(Module):
    """A bare module with given attributes."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


def _compiled(code: PythonCode, function: str) -> Any:
    """The function of some code. Tracebacks show its lines."""
    file = f"<eval_with_key>.{next(_numbers)}"
    linecache.cache[file] = (len(code.src), None, code.src.splitlines(True), file)
    scope = dict(code.globals)
    exec(compile(code.src, file, "exec"), scope)
    return scope[function]


def _copy_attr(from_module: Any, to_module: Any, target: str) -> None:
    """Let `to_module` have what `from_module` has at a path; modules on the way are made anew."""
    *parents, last = target.split(".")
    for name in parents:
        found = getattr(from_module, name)
        kept = getattr(to_module, name, None)
        if found is kept:  # the whole module is there already
            return
        if kept is None:
            kept = Module()
            setattr(to_module, name, kept)
        from_module, to_module = found, kept
    found = getattr(from_module, last)
    if isinstance(found, lu.Tensor) and not isinstance(found, Parameter):
        to_module.register_buffer(last, found)
    else:
        setattr(to_module, last, found)


def _assign_attr(found: Any, to_module: Any, target: str) -> None:
    """Put something at a path; modules on the way are made."""
    *parents, last = target.split(".")
    for name in parents:
        kept = getattr(to_module, name, None)
        if kept is None:
            kept = Module()
            setattr(to_module, name, kept)
        to_module = kept
    if isinstance(found, lu.Tensor) and not isinstance(found, Parameter):
        to_module.register_buffer(last, found)
    else:
        setattr(to_module, last, found)


def _shared_class(cls: type) -> Any:
    """The class whose own class an instance has."""
    return next(c for c in cls.__mro__ if "_of_one_instance" not in vars(c))


class GraphModule(Module):
    """A module made from a graph. Change `graph`, call `recompile()`, and it runs the new one.

    >>> import lucerne as torch
    >>> traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh()))
    >>> for node in traced.graph.nodes:
    ...     if node.target == "1":
    ...         node.target = "0"
    >>> _ = traced.recompile()
    >>> traced(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    _graph: Graph
    _code: str

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # forward belongs to the class, so each instance has a class of its own.
        base = _shared_class(cls)
        made = type(base.__name__, (base,), {"_of_one_instance": True})
        made.__module__ = base.__module__
        return super().__new__(made)

    def __init__(self, root: Any, graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        if isinstance(root, Module):
            if hasattr(root, "training"):
                self.training = root.training
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module"):
                    _copy_attr(root, self, node.target)
        elif isinstance(root, dict):
            wanted = {n.target for n in graph.nodes if n.op in ("get_attr", "call_module")}
            for target in sorted(wanted, key=lambda t: t.count(".")):
                if target not in root:
                    raise RuntimeError(
                        f"Node referenced target {target} but that target was not provided in "
                        "``root``!"
                    )
                _assign_attr(root[target], self, target)
        else:
            raise RuntimeError(f"Unsupported type {type(root)} passed for root!")
        self.meta: dict[str, Any] = {}
        if isinstance(root, Module) and _USER_PRESERVED_ATTRIBUTES_KEY in vars(root).get(
            "meta", {}
        ):
            kept = root.meta[_USER_PRESERVED_ATTRIBUTES_KEY]
            self.meta[_USER_PRESERVED_ATTRIBUTES_KEY] = kept
            for name, value in kept.items():
                setattr(self, name, value)
        self._tracer_cls = graph._tracer_cls
        self._tracer_extras = graph._tracer_extras or {}
        self.graph = graph

    @property
    def graph(self) -> Graph:
        """The graph. Assigning one recompiles."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self.__dict__["_graph"] = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The source of `forward`."""
        return self._code

    def recompile(self) -> PythonCode:
        """Make `forward` anew from the graph: call it after changing the graph."""
        code = self._graph.python_code(root_module="self")
        self.__dict__["_code"] = code.src
        type(self).forward = _compiled(code, self._graph._codegen._func_name)
        return code

    def __getattr__(self, name: str) -> Any:
        if name == "_code":
            raise RuntimeError("Code has not been generated! Please report a bug to PyTorch")
        return super().__getattr__(name)

    def __str__(self) -> str:
        hint = "To see more debug info, please use `graph_module.print_readable()`"
        return f"{super().__repr__()}\n{self._code}\n# {hint}"

    def print_readable(
        self,
        print_output: bool = True,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
    ) -> str:
        """Print (and return) the code as a class, with shapes where they are known."""
        code = self._graph.python_code(
            root_module="self",
            verbose=True,
            include_stride=include_stride,
            include_device=include_device,
        ).src
        lines = [f"class {type(self).__name__}(torch.nn.Module):"]
        lines += [f"    {line}".rstrip() for line in code.strip("\n").split("\n")]
        for child in self.children():
            if isinstance(child, GraphModule):
                inner = child.print_readable(False, include_stride, include_device)
                lines += ["", *(f"    {line}".rstrip() for line in inner.split("\n"))]
        text = "\n".join(lines).rstrip() + "\n"
        if print_output:
            print(text)
        return text

    # ---- modules -------------------------------------------------------------------------------

    def add_submodule(self, target: str, m: Any) -> bool:
        """Put a module at a path; False if something that is no module is on the way."""
        *parents, last = target.split(".")
        at: Any = self
        for name in parents:
            if not hasattr(at, name):
                setattr(at, name, Module())
            at = getattr(at, name)
            if not isinstance(at, Module):
                return False
        at.add_module(last, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Remove the module at a path; False if there is none."""
        *parents, last = target.split(".")
        at: Any = self
        for name in parents:
            at = getattr(at, name, None)
            if not isinstance(at, Module):
                return False
        if not isinstance(getattr(at, last, None), Module):
            return False
        delattr(at, last)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Remove the modules that no node calls or reads from."""
        used: set[str] = set()
        for node in self._graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = node.target.split(".")
                used.update(".".join(parts[:n]) for n in range(1, len(parts) + 1))
                if node.op == "call_module":
                    called = self.get_submodule(node.target)
                    inner = (name for name, _ in called.named_modules() if name)
                    used.update(f"{node.target}.{name}" for name in inner)
        for name, _ in list(self.named_modules()):
            if name and name not in used:
                self.delete_submodule(name)

    # ---- copies --------------------------------------------------------------------------------

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        base = _shared_class(type(self))
        made = base.__new__(base)
        memo[id(self)] = made
        type(made).__name__ = type(self).__name__
        state = {k: v for k, v in self.__dict__.items() if k != "_graph"}
        made.__dict__.update(copy.deepcopy(state, memo))
        made.graph = copy.deepcopy(self._graph, memo)
        return made

    def __copy__(self) -> Any:
        base = _shared_class(type(self))
        made = base.__new__(base)
        type(made).__name__ = type(self).__name__
        made.__dict__.update({k: v for k, v in self.__dict__.items() if k != "_graph"})
        made.graph = copy.deepcopy(self._graph)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        base = _shared_class(type(self))
        state = {k: v for k, v in self.__dict__.items() if k not in ("_graph", "_code")}
        return _rebuilt, (base, type(self).__name__, state, self._graph)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()

    def to_folder(self, folder: str | Path, module_name: str = "FxModule") -> None:
        """Write the module as a package: its code as Python, its tensors in `state_dict.pt`.

        Layers are written as the calls that make them; modules with code of their own are refused,
        because nobody could read that back safely.
        """
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        package().save(self.state_dict(), place / "state_dict.pt")
        code = self._graph.python_code(root_module="self")
        lines = ["from pathlib import Path", "", *code.imports.values(), "", ""]
        lines += [f"class {module_name}(torch.nn.Module):", "    def __init__(self):"]
        lines += ["        super().__init__()", *_construction("self", self)]
        lines.append('        state = torch.load(Path(__file__).parent / "state_dict.pt")')
        lines += ["        self.load_state_dict(state)", ""]
        lines += [f"    {line}".rstrip() for line in code.src.strip("\n").split("\n")]
        (place / "module.py").write_text("\n".join(lines) + "\n")
        (place / "__init__.py").write_text(f"from .module import {module_name}\n")


def _construction(name: str, module: Any) -> list[str]:
    """Lines that give a module what another one has."""
    lines: list[str] = []
    for own, parameter in module._parameters.items():
        if parameter is not None:
            made = f"torch.empty({list(parameter.shape)}, dtype={parameter.dtype})"
            given = f"torch.nn.Parameter({made}, {parameter.requires_grad})"
            lines.append(f"        {name}.register_parameter({own!r}, {given})")
    for own, buffer in module._buffers.items():
        if buffer is not None:
            made = f"torch.empty({list(buffer.shape)}, dtype={buffer.dtype})"
            lines.append(f"        {name}.register_buffer({own!r}, {made})")
    for own, child in module.named_children():
        plain = type(child) in (Module, Sequential)
        if not plain and not own_home(type(child).__module__).startswith("lucerne.nn."):
            raise NotImplementedError(
                f"to_folder: {own} is a {type(child).__name__}, whose code can't be written down. "
                "Trace it as well (Tracer.is_leaf_module), or save the state_dict()"
            )
        options = "" if plain else child.extra_repr()
        made = f"torch.nn.{type(child).__name__}({options})"
        lines.append(f"        {name}.add_module({own!r}, {made})")
        if plain:
            lines += _construction(f'{name}.get_submodule("{own}")', child)
    return lines


def _rebuilt(base: Any, name: str, state: dict[str, Any], graph: Graph) -> Any:
    made = base.__new__(base)
    type(made).__name__ = name
    made.__dict__.update(state)
    made.graph = graph
    return made


def get_attr(module: Any, path: str) -> Any:
    """What a module has at a path."""
    for name in path.split("."):
        module = getattr(module, name)
    return module
