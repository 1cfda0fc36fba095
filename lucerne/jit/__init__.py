"""`lucerne.jit`: TorchScript's spelling over `lucerne.export`.

`trace` records a program, `script` leaves a function as it is and records its program when somebody
asks for it, `save` and `load` keep programs in files that need no source.
"""

from __future__ import annotations

import copy
import types
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.base.refusals import only
from lucerne._src.tensor import api as lu
from lucerne.export import blueprint as bp
from lucerne.export.errors import ExportError
from lucerne.export.file import load as load_program
from lucerne.export.program import ExportedProgram
from lucerne.jit.marks import Attribute as Attribute
from lucerne.jit.marks import Final as Final
from lucerne.jit.marks import annotate as annotate
from lucerne.jit.marks import enable_onednn_fusion as enable_onednn_fusion
from lucerne.jit.marks import export as export
from lucerne.jit.marks import fork as fork
from lucerne.jit.marks import ignore as ignore
from lucerne.jit.marks import interface as interface
from lucerne.jit.marks import is_scripting as is_scripting
from lucerne.jit.marks import is_tracing as is_tracing
from lucerne.jit.marks import isinstance_ as isinstance_
from lucerne.jit.marks import onednn_fusion_enabled as onednn_fusion_enabled
from lucerne.jit.marks import script_if_tracing as script_if_tracing
from lucerne.jit.marks import script_method as script_method
from lucerne.jit.marks import set_fusion_strategy as set_fusion_strategy
from lucerne.jit.marks import unused as unused
from lucerne.jit.marks import wait as wait
from lucerne.jit.modules import RecursiveScriptModule as RecursiveScriptModule
from lucerne.jit.modules import ScriptFunction as ScriptFunction
from lucerne.jit.modules import ScriptModule as ScriptModule
from lucerne.jit.modules import TopLevelTracedModule as TopLevelTracedModule
from lucerne.jit.modules import TracedModule as TracedModule
from lucerne.jit.modules import auto_export, program_of, remembered
from lucerne.jit.tracing import TracerWarning as TracerWarning
from lucerne.jit.tracing import tracing
from lucerne.nn.modules.module import Module

Error = RuntimeError


def __getattr__(name: str) -> Any:
    """`jit.isinstance`, which as a plain name would hide Python's from this module."""
    if name == "isinstance":
        return isinstance_
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class TracingCheckError(RuntimeError):
    """A trace that gives other results than the function."""


def _warn_of_optimize(optimize: Any) -> None:
    if optimize is not None:
        notices.warn(
            "`optimize` is deprecated and has no effect. Use `with "
            "torch.jit.optimized_execution()` instead",
            FutureWarning,
        )


def trace(
    func: Any,
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_kwarg_inputs: dict[str, Any] | None = None,
    _store_inputs: bool = True,
) -> Any:
    """The program of a function or module, for arguments like the examples.

    Sizes may change afterwards where the function lets them. `check_trace`: its results are
    compared with those of the function, on the examples and on `check_inputs`. Python code that
    looks at values is refused with its line; PyTorch would keep the values of the example.

    >>> import lucerne as torch
    >>> double = torch.jit.trace(lambda x: x * 2, torch.ones(3))
    >>> double(torch.ones(5))
    tensor([2., 2., 2., 2., 2.])
    """
    _warn_of_optimize(optimize)
    if isinstance(func, (ScriptFunction, TracedModule)):
        return func
    args = example_inputs if example_inputs is not None else ()
    args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    kwargs = dict(example_kwarg_inputs or {})
    forward = func.forward if isinstance(func, Module) else func
    tolerance = check_tolerance, check_tolerance
    with tracing():
        program = _traced(func, forward, args, kwargs, check_trace, tolerance)
    for more in check_inputs or () if check_trace else ():
        given = tuple(more) if isinstance(more, (tuple, list)) else (more,)
        _check(func, program, given, check_tolerance)
    if isinstance(func, Module):
        return TracedModule(program, type(func).__name__)
    return ScriptFunction(func, program)


def _traced(
    func: Any, forward: Any, args: Any, kwargs: Any, check: bool, tolerance: Any
) -> ExportedProgram:
    try:
        return auto_export(func, forward, args, kwargs, check=check, tolerance=tolerance)
    except ExportError as error:
        text = str(error).replace("export:", "trace:", 1)
        if "differs from the module" in text:
            raise TracingCheckError(f"Tracing failed sanity checks! {text}") from error
        raise RuntimeError(
            f"{text}\nA trace has no values to decide by: use torch.cond or torch.where for `if`, "
            "torch.while_loop for loops."
        ) from error


def _check(func: Any, program: ExportedProgram, args: tuple[Any, ...], tolerance: float) -> None:
    with lu.no_grad():
        want, got = func(*args), program.module()(*args)
    pairs = zip(_tensors(want), _tensors(got), strict=True)
    for k, (a, b) in enumerate(pairs):
        if not lu.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True):
            gap = (a - b).abs().max().item()
            raise TracingCheckError(
                f"Tracing failed sanity checks! On check_inputs, result {k} differs by {gap:.3g}"
            )


def _tensors(x: Any) -> list[Any]:
    if isinstance(x, lu.Tensor):
        return [x]
    if isinstance(x, dict):
        x = list(x.values())
    return [t for y in x for t in _tensors(y)] if isinstance(x, (list, tuple)) else []


def trace_module(mod: Any, inputs: dict[str, Any], optimize: Any = None, **options: Any) -> Any:
    """`trace` of several methods of a module: each becomes a program."""
    _warn_of_optimize(optimize)
    options.pop("example_inputs_is_kwarg", None)
    found = {
        name: trace(mod if name == "forward" else getattr(mod, name), given, **options)
        for name, given in inputs.items()
    }
    made = found.pop("forward", None)
    if made is None:
        made = script(mod)
    for name, traced in found.items():
        made.__dict__[name] = traced
    return made


def script(
    obj: Any,
    optimize: Any = None,
    _frames_up: int = 0,
    _rcb: Any = None,
    example_inputs: Any = None,
) -> Any:
    """The function or module as it is, with `graph`, `code` and `save`.

    TorchScript is a subset of Python with Python's meaning, so it runs as the Python it is,
    decisions by values included. Its program (for `save`) is recorded for arguments like those of
    the first call, or of `example_inputs`; there, decisions by values are refused with their line.

    >>> import lucerne as torch
    >>> @torch.jit.script
    ... def double(x):
    ...     return x + x
    >>> double(torch.ones(2))
    tensor([2., 2.])
    >>> print(double.code.strip())
    def forward(self, x):
        add = torch.Tensor.add(x, x);  x = None
        return (add,)
    """
    _warn_of_optimize(optimize)
    if isinstance(obj, (ScriptFunction, ScriptModule, type)):
        return obj
    made: Any
    if isinstance(obj, Module):
        made = _scripted(obj)
    elif isinstance(obj, (types.FunctionType, types.MethodType, types.BuiltinFunctionType)):
        made = ScriptFunction(obj)
    elif isinstance(obj, (dict, list, tuple)):
        return obj
    elif callable(obj):
        made = ScriptFunction(obj)
    else:
        raise RuntimeError(f"Could not get name of python class or object {type(obj).__name__}")
    if example_inputs:
        first = next(
            iter(example_inputs.values() if isinstance(example_inputs, dict) else example_inputs)
        )
        if isinstance(example_inputs, dict):
            first = first[0]
        given = tuple(first) if isinstance(first, (tuple, list)) else (first,)
        made.__dict__["_example"] = remembered(given, {})
    return made


def _scripted(module: Module) -> Any:
    """The module with another class beside its own: it shares all parameters and parts."""
    made = copy.copy(module)
    kind = type(module)
    made.__class__ = type(kind.__name__, (ScriptModule, kind), {"__module__": kind.__module__})
    made.__dict__["_original_name"] = kind.__name__
    return made


def save(m: Any, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
    """Save a traced or scripted function or module, see `ScriptModule.save`."""
    if not hasattr(m, "_program"):
        raise RuntimeError(
            f"torch.jit.save: a traced or scripted module is expected, not {type(m).__name__}"
        )
    m.save(f, _extra_files=_extra_files)


def load(
    f: Any,
    map_location: Any = None,
    _extra_files: dict[str, Any] | None = None,
    _restore_shapes: bool = False,
) -> Any:
    """A program from a file, as a module; the class it was made of is not needed."""
    program = load_program(f, extra_files=_extra_files)
    made = TracedModule(program, "RecursiveScriptModule")
    return made if map_location is None else made.to(map_location)


def freeze(mod: Any, preserved_attrs: Any = None, optimize_numerics: bool = True) -> Any:
    """A module in eval mode whose parameters are constants, run through the compiler's pipeline."""
    only(
        "freeze", "preserved_attrs", list(preserved_attrs or ()), [],
        "a frozen module is its forward; keep the module itself for the rest",
    )  # fmt: skip
    if not isinstance(mod, ScriptModule):
        raise RuntimeError(
            "Freezing expects a ScriptModule as input. Please use torch.jit.script or "
            "torch.jit.trace to script your 'nn.Module'."
        )
    if mod.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() "
            "on your module before freezing."
        )
    if not isinstance(mod, TracedModule) and mod.__dict__.get("_example") is None:
        return _Later(mod)
    return _frozen(mod._program(), mod.original_name)


def _frozen(program: ExportedProgram, name: str) -> Any:
    plan = copy.copy(program.plan)
    written = {t.index for t, _ in plan.at(plan.example_sizes())[0].writes}
    plan.inputs = [
        copy.copy(i) if v.index in written or i.kind == bp.ARGUMENT else _constant(i)
        for v, i in zip(plan.graph.inputs, plan.inputs, strict=True)
    ]
    tensors = {}
    for old, new in zip(program.plan.inputs, plan.inputs, strict=True):
        if old.kind != bp.ARGUMENT:
            t = program.tensors[old.kind, old.target]
            tensors[new.kind, new.target] = t.detach() if new.kind == bp.CONSTANT else t
    state = {n: t for (k, n), t in tensors.items() if k != bp.CONSTANT}
    made = TracedModule(ExportedProgram(plan, tensors, state), name)
    made.eval()
    return made.compiled()


def _constant(i: bp.Input) -> bp.Input:
    made = copy.copy(i)
    made.kind, made.requires_grad = bp.CONSTANT, False
    return made


class _Later(ScriptModule):
    """A module that is frozen when its arguments are known."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.__dict__["_module"], self.__dict__["_done"] = module, None
        self.eval()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._done is None:
            module = self._module
            program = program_of(
                module, type(module).forward.__get__(module), remembered(args, kwargs)
            )
            self.__dict__["_done"] = _frozen(program, module.original_name)
        return self._done(*args, **kwargs)

    def _program(self) -> ExportedProgram:
        source = self._module if self._done is None else self._done
        made: ExportedProgram = source._program()
        return made


def optimize_for_inference(mod: Any, other_methods: Any = None) -> Any:
    """A frozen module that runs through the compiler's pipeline."""
    only(
        "optimize_for_inference", "other_methods", list(other_methods or ()), [],
        "a frozen module is its forward; freeze a module for each method",
    )  # fmt: skip
    if isinstance(mod, TracedModule):
        mod.eval()
        return mod.compiled()
    return freeze(mod.eval() if isinstance(mod, Module) else mod)


def run_frozen_optimizations(
    mod: Any, optimize_numerics: bool = True, preserved_methods: Any = None
) -> None:
    """Nothing more to do: the pipeline has its passes."""


def is_scripted(obj: Any) -> bool:
    return isinstance(obj, (ScriptFunction, ScriptModule))


def export_opnames(m: Any) -> list[str]:
    """The names of the ops of a program."""
    return sorted({n.op.qualified for n in m._program().plan.graph.nodes})
