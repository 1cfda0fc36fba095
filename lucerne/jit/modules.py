"""ScriptModule and ScriptFunction: programs with TorchScript's spelling."""

from __future__ import annotations

from typing import Any

from lucerne._src.capture import is_capturing
from lucerne._src.capture.trace.fake import fake_tensor
from lucerne._src.capture.trace.pytree import flatten, rebuild
from lucerne._src.tensor import api as lu
from lucerne.export.dims import Dim, argument_names
from lucerne.export.door import export_callable
from lucerne.export.errors import ExportError
from lucerne.export.file import save as save_program
from lucerne.export.program import ExportedModule, ExportedProgram, register_unread
from lucerne.nn.modules.module import Module

_HOW = (
    "TorchScript's save and graph need to know the arguments: call it once, or give "
    "torch.jit.script(..., example_inputs=[(x,)])"
)


class _Scripted:
    """What scripted and traced things have in common."""

    def _program(self) -> ExportedProgram:
        raise NotImplementedError

    @property
    def graph(self) -> Any:
        """The ops, as a graph of `fx`."""
        return self._program().graph

    @property
    def inlined_graph(self) -> Any:
        return self._program().graph

    @property
    def code(self) -> str:
        """The ops as Python."""
        return self._program().graph_module.code.strip() + "\n"

    def save(self, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
        """Save program and weights: a file that `torch.jit.load` runs without the source."""
        save_program(self._program(), f, extra_files=_extra_files)


class ScriptFunction(_Scripted):
    """A function with a program: traced, or scripted, whose program is made when it is needed."""

    def __init__(self, fn: Any, program: ExportedProgram | None = None) -> None:
        self._fn, self._made = fn, program
        self._example: Any = None
        self._module = None if program is None else program.module()
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            if hasattr(fn, name):
                setattr(self, name, getattr(fn, name))
        self.__wrapped__ = fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._module is not None:
            return self._module(*args, **kwargs)
        if self._example is None:
            self._example = remembered(args, kwargs)
        return self._fn(*args, **kwargs)

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else self._fn.__get__(owner, kind)

    def __repr__(self) -> str:
        return f"<torch.jit.ScriptFunction {getattr(self, '__name__', '')}>"

    def _program(self) -> ExportedProgram:
        if self._made is None:
            self._made = program_of(self._fn, self._fn, self._example)
        return self._made


class ScriptModule(_Scripted, Module):
    """A module with TorchScript's spelling (`graph`, `code`, `save`).

    Scripted modules run as the Python they are and are exported when their program is asked for;
    traced and loaded ones are programs. Subclasses with `script_method`s are ordinary modules.
    """

    _example: Any = None
    _made: ExportedProgram | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.__dict__.get("_example") is None and not is_capturing():
            self.__dict__["_example"] = remembered(args, kwargs)
        return super().__call__(*args, **kwargs)

    def _program(self) -> ExportedProgram:
        return program_of(self, type(self).forward.__get__(self), self.__dict__.get("_example"))

    @property
    def original_name(self) -> str:
        return str(self.__dict__.get("_original_name", type(self).__name__))


RecursiveScriptModule = ScriptModule


class TracedModule(ScriptModule, ExportedModule):
    """A program as a module: made by `trace`, `load` and `freeze`."""

    def __init__(self, program: ExportedProgram, name: str = "TracedModule") -> None:
        ExportedModule.__init__(self, program.plan, program.tensors)
        register_unread(self, program)
        self.__dict__["_made"] = program
        self.__dict__["_original_name"] = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return Module.__call__(self, *args, **kwargs)

    def _program(self) -> ExportedProgram:
        made: ExportedProgram = self.__dict__["_made"]
        return made


TopLevelTracedModule = TracedModule


def remembered(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The arguments of a call without their bytes."""
    leaves: list[Any] = []
    shape = flatten((args, kwargs), leaves)
    return shape, [x._meta if isinstance(x, lu.Tensor) else x for x in leaves]


def program_of(fn: Any, forward: Any, example: Any) -> ExportedProgram:
    """The program of a scripted function or module, for arguments like those of its first call."""
    if example is None:
        raise RuntimeError(f"{getattr(fn, '__name__', type(fn).__name__)}: {_HOW}")
    shape, leaves = example
    given = [fake_tensor(x) if hasattr(x, "strides") and hasattr(x, "dtype") else x for x in leaves]
    args, kwargs = rebuild(shape, iter(given))
    try:
        return auto_export(fn, forward, args, kwargs, check=False)
    except ExportError as error:
        raise RuntimeError(
            f"{error}\nA program has both sides of a decision by values only if it says so: use "
            "torch.cond(pred, true_fn, false_fn, operands) for `if`, torch.while_loop for loops, "
            "torch.where where both sides can be computed."
        ) from error


def auto_export(
    fn: Any, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any], **options: Any
) -> ExportedProgram:
    """Exported for all sizes that the function lets change."""
    names = argument_names(forward, args, kwargs)
    dims = dict.fromkeys(names, Dim.AUTO)
    return export_callable(fn, forward, args, kwargs, dims, **options)
