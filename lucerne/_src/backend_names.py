"""What `compile(backend=...)` takes: names of devices, names that PyTorch has, functions.

A function gets a `fx.GraphModule` and example inputs, and returns what is called in its place;
that returns a tuple, as the module does. The graphs are those of the compiler: forward and backward
apart, without mutation until their last lines, parameters among the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src import backends
from lucerne._src.backends.contract.backend import Runner
from lucerne._src.base.process.late_bindings import LateBindings
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.tensor import api as lu

CompilerFunction = Callable[..., Callable[..., Any]]

_ALIASES = {"inductor": (), "eager": ("fuse", "anchors"), "aot_eager": ("fuse", "anchors")}
"""Names of PyTorch's, which mean the host: with all it can do, or op by op."""
_DEBUG = frozenset(("eager", "aot_eager", "null", "reference"))
_functions: dict[str, tuple[CompilerFunction, frozenset[str]]] = {}


def register_backend(
    compiler_fn: Any = None, name: str | None = None, tags: Sequence[str] = ()
) -> Any:
    """Give a function a name that `compile(backend=...)` knows; also as a decorator.

    >>> import lucerne as torch
    >>> def printed(module, inputs):
    ...     print(len(inputs), "input")
    ...     return module.forward
    >>> _ = torch.compiler.register_backend(printed)
    >>> torch.compile(lambda x: x + 1, backend="printed")(torch.ones(1))
    1 input
    tensor([2.])
    """
    if compiler_fn is None:
        return lambda fn: register_backend(fn, name, tags)
    known = name or compiler_fn.__name__
    if known in _functions and _functions[known][0] is not compiler_fn:
        raise AssertionError(f"duplicate name: {known}")
    _functions[known] = compiler_fn, frozenset(tags)
    return compiler_fn


def list_backends(exclude_tags: Sequence[str] | None = ("debug", "experimental")) -> list[str]:
    """The names that `compile(backend=...)` takes; by default without those for debugging."""
    left_out = frozenset(exclude_tags or ())
    found = {name: frozenset(("debug",)) & _tags(name) for name in (*_ALIASES, *backends.names())}
    found.update({name: tags for name, (_, tags) in _functions.items()})
    return sorted(name for name, tags in found.items() if not tags & left_out)


def _tags(name: str) -> frozenset[str]:
    return frozenset(("debug",)) if name in _DEBUG else frozenset()


def chosen(backend: Any, options: dict[str, Any] | None) -> dict[str, Any]:
    """What `capture.compile` is told for a backend as users name it."""
    if isinstance(backend, str) and backend in _functions:
        backend = _functions[backend][0]
    if callable(backend):
        how = {} if not options else {"options": options}
        left_out = {"disable": ("count_draws", "draws")}
        return {"backend": None, "maker": GraphMaker(backend, how), "options": left_out}
    found = dict(options or {})
    if backend in _ALIASES:
        found["disable"] = (*found.get("disable", ()), *_ALIASES[backend])
        backend = None
    if backend is not None and not backends.is_known(backend):
        raise RuntimeError(
            f"Invalid backend: {backend!r}, see `torch.compiler.list_backends()` for available "
            "backends."
        )
    return {"backend": backend, "options": found}


class GraphMaker:
    """Hands graphs over to a function of the user's."""

    def __init__(self, compiler_fn: CompilerFunction, how: dict[str, Any]) -> None:
        self.compiler_fn, self.how = compiler_fn, how

    def __call__(self, graph: Graph, constants: dict[int, Any]) -> GraphRunner:
        held = {graph.inputs[k]: t for k, t in constants.items()}
        module = LateBindings.graph_module(graph, held)
        metas = [v.meta for v in graph.inputs if v not in held]
        examples = [_example(m) for m in metas]
        made = self.compiler_fn(module, examples, **self.how)
        return GraphRunner(made, [isinstance(m, TensorMeta) for m in metas])


def _example(meta: Any) -> Any:
    if not isinstance(meta, TensorMeta):
        return 0.0
    return lu.empty_strided(tuple(meta.shape), meta.strides, dtype=meta.dtype).zero_()


class GraphRunner(Runner):
    """Runs what the user's function returned."""

    def __init__(self, run: Callable[..., Any], tensors: list[bool]) -> None:
        self.run, self.tensors = run, tensors

    def __call__(
        self, arguments: Sequence[Any], numbers: Sequence[float], results: Sequence[Any]
    ) -> None:
        tensors, rest = iter(arguments), iter(numbers)
        with lu.no_grad():
            found = self.run(*[next(tensors) if t else next(rest) for t in self.tensors])
            found = (found,) if isinstance(found, lu.Tensor) else tuple(found)
            if len(found) != len(results):
                raise RuntimeError(
                    f"the backend's function returned {len(found)} results, its graph has "
                    f"{len(results)}"
                )
            for result, given in zip(results, found, strict=True):
                result.copy_(given)
