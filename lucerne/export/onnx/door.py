"""`lucerne.onnx.export`: from a module to an ONNX file that was run again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lucerne._src.base.refusals import only
from lucerne._src.capture.trace.pytree import flatten
from lucerne._src.tensor import api as lu
from lucerne.export.dims import Dim
from lucerne.export.door import export_callable
from lucerne.export.errors import ExportError
from lucerne.export.onnx.check import Comparison, compare
from lucerne.export.onnx.errors import OnnxExporterError, Refusal
from lucerne.export.onnx.model import OPSETS, Names, has_mutation, model_of
from lucerne.export.onnx.packages import onnx_package
from lucerne.export.onnx.program import ONNXProgram
from lucerne.export.onnx.rules import load_rules
from lucerne.export.onnx.table import has_rule
from lucerne.export.program import ExportedProgram
from lucerne.nn.modules.module import Module

DEFAULT_OPSET = 20
_ONE_WAY = "a model is written in one way"


def export(
    model: Any,
    args: tuple[Any, ...] = (),
    f: str | os.PathLike[str] | None = None,
    *,
    kwargs: dict[str, Any] | None = None,
    verbose: bool | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamo: bool = True,
    external_data: bool = True,
    dynamic_shapes: Any = None,
    custom_translation_table: Any = None,
    report: bool = False,
    optimize: bool = True,
    verify: bool = False,
    profile: bool = False,
    dump_exported_program: bool = False,
    artifacts_dir: str | os.PathLike[str] = ".",
    export_params: bool = True,
    keep_initializers_as_inputs: bool = False,
    dynamic_axes: Mapping[str, Any] | None = None,
    training: Any = None,
    operator_export_type: Any = None,
    do_constant_folding: bool = True,
    custom_opsets: Any = None,
    export_modules_as_functions: Any = False,
    autograd_inlining: bool = True,
    check: bool = True,
) -> ONNXProgram:
    """A module (or an exported program) as an ONNX model, written to `f` if that is given.

    `check`: the model is run by onnxruntime on the example, and at another size if some may change;
    `report` (of what is returned) has the largest difference. What has no form in ONNX is refused,
    all of it at once, each with its op and line. `dynamic_shapes` is as in `lucerne.export.export`.

    >>> import lucerne as torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    >>> made = torch.onnx.export(net, (torch.ones(2, 4),))      # doctest: +SKIP
    >>> [node.op_type for node in made.model_proto.graph.node]  # doctest: +SKIP
    ['MatMul', 'Add', 'Relu', 'Identity']
    """
    where = "onnx.export"
    only(where, "dynamo", dynamo, True, "there is one exporter")
    for name, value, usual in (
        ("custom_translation_table", custom_translation_table, None), ("profile", profile, False),
        ("training", _unless(training, "EVAL"), None),
        ("operator_export_type", _unless(operator_export_type, "ONNX"), None),
        ("custom_opsets", custom_opsets, None), ("optimize", optimize, True),
        ("do_constant_folding", do_constant_folding, True),
        ("export_modules_as_functions", export_modules_as_functions, False),
        ("autograd_inlining", autograd_inlining, True),
    ):  # fmt: skip
        only(where, name, value, usual, _ONE_WAY)
    opset = DEFAULT_OPSET if opset_version is None else opset_version
    if opset not in OPSETS:
        raise ValueError(f"{where}: opset_version is one of {', '.join(map(str, OPSETS))}")
    onnx_package()
    args = args if isinstance(args, tuple) else (args,)
    if dynamic_axes is not None and dynamic_shapes is None:
        dynamic_shapes = _from_axes(dynamic_axes, args, kwargs or {}, input_names)
    program = recorded(model, args, kwargs or {}, dynamic_shapes)
    made = model_of(program, opset, Names(input_names or (), output_names or ()))
    compared = _comparisons(made, program) if check or verify else []
    result = ONNXProgram(made, program, compared, opset)
    if f is not None:
        result.save(
            f, external_data=external_data, include_initializers=export_params,
            keep_initializers_as_inputs=keep_initializers_as_inputs,
        )  # fmt: skip
    _tell(result, verbose, report, dump_exported_program, Path(artifacts_dir))
    return result


def _unless(choice: Any, usual: str) -> Any:
    """A choice of torch's enumerations; None: the usual one."""
    return None if getattr(choice, "name", choice) == usual else choice


def _tell(
    result: ONNXProgram, verbose: bool | None, report: bool, dump: bool, folder: Path
) -> None:
    if verbose:
        print(result.report)
    if report:
        (folder / "onnx_export_report.md").write_text(result.report + "\n", encoding="utf-8")
    if dump:
        text = str(result.exported_program)
        (folder / "onnx_export_program.txt").write_text(text + "\n", encoding="utf-8")


def recorded(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any = None
) -> ExportedProgram:
    """The program with those composites whole that ONNX has rules for, and without mutation."""
    load_rules()
    if isinstance(model, ExportedProgram):
        if args or kwargs or dynamic_shapes is not None:
            raise ValueError("onnx.export: a program has its example and its sizes already")
        program = model.recorded_again(keep=has_rule)
        program._example = model.example_inputs
        return program
    if not isinstance(model, Module):
        raise ValueError(
            f"onnx.export: a Module or an ExportedProgram is expected, not {type(model).__name__}"
        )

    def exported(keep: Any) -> ExportedProgram:
        with lu.no_grad():
            return export_callable(
                model, model.forward, args, kwargs, dynamic_shapes, check=False, keep=keep
            )

    try:
        program = exported(has_rule)
    except ExportError:  # the body of a composite that has no rule looks at values: it stays whole,
        program = exported(None)  # and is refused by name
    if has_mutation(program.plan.graph):
        example = program.example_inputs
        program = program.recorded_again(keep=has_rule)
        program._example = example
    return program


def refusals(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None,
    dynamic_shapes: Any = None, opset: int = DEFAULT_OPSET,
) -> tuple[Refusal, ...]:  # fmt: skip
    """What of a module has no form in ONNX: nothing is written, nothing is run."""
    onnx_package()
    try:
        model_of(recorded(model, args, kwargs or {}, dynamic_shapes), opset, Names())
    except OnnxExporterError as error:
        return error.refusals
    return ()


def _comparisons(made: Any, program: ExportedProgram) -> list[Comparison]:
    example = program.example_inputs
    if example is None:
        return []
    leaves: list[Any] = []
    flatten(example, leaves)
    if any(x.device.type == "meta" for x in leaves if isinstance(x, lu.Tensor)):
        return []
    return compare(made, program, leaves)


def _from_axes(
    axes: Mapping[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    input_names: Sequence[str] | None,
) -> Any:  # fmt: skip
    """`dynamic_axes` (names of inputs to numbers and names of dimensions) as `dynamic_shapes`."""
    names = [*(input_names or ())]
    made: dict[str, Any] = {}
    found: list[Any] = []
    for k, x in enumerate([*args, *kwargs.values()]):
        told = axes.get(names[k]) if k < len(names) else None
        if told is None or not isinstance(x, lu.Tensor):
            found.append(None)
            continue
        if not isinstance(told, Mapping):
            told = {d: f"{names[k]}_dim_{d}" for d in told}
        found.append({d: made.setdefault(n, Dim(_named(n))) for d, n in told.items()})
    count = len(args)
    by_name = dict(zip(kwargs, found[count:], strict=True))
    if not by_name:
        return tuple(found)
    raise ValueError("onnx.export: dynamic_axes with kwargs; give dynamic_shapes by name")


def _named(n: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in n)
