"""Exported programs in files: safetensors files whose header also has the graph and signature.

Other readers of the format see the weights. The graph is text (`ir/text.py`) that is parsed and
verified, the rest is JSON; nothing in a file is executed, and every byte is under a checksum.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from lucerne._src.base.device import HOST
from lucerne._src.base.refusals import only
from lucerne._src.io import safetensors
from lucerne._src.io.atomic import write_atomic
from lucerne._src.io.errors import CorruptFileError, LoadError, UnsupportedFileError
from lucerne._src.ir import text as ir_text
from lucerne._src.ir.graph import Graph, verify
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.meta_text import static_text
from lucerne._src.ir.symbolic.expressions import FORMULAS
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.base import new_tensor
from lucerne.export import blueprint as bp
from lucerne.export import formulas, generators, shapes
from lucerne.export.errors import ExportError
from lucerne.export.program import ExportedProgram
from lucerne.export.safety import check_graph
from lucerne.nn.parameter import Parameter

VERSION = 1
_SIGNATURE, _GRAPH, _EXTRA = "lucerne.export", "lucerne.graph", "extra."
LARGEST_TEXT = 64 << 20
_MOST_DEPTH = 60


# ---- writing ------------------------------------------------------------------------------------


def save(
    ep: ExportedProgram,
    f: Any,
    *,
    extra_files: dict[str, Any] | None = None,
    opset_version: Any = None,
    pickle_protocol: int = 2,
) -> None:
    """Save an exported program to a path or an open file; a path is replaced in one step.

    >>> import io, lucerne as torch
    >>> program = torch.export.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    >>> file = io.BytesIO()
    >>> torch.export.save(program, file)
    >>> again = torch.export.load(io.BytesIO(file.getvalue())).module()
    >>> bool((again(torch.ones(4, 3)) == program.module()(torch.ones(4, 3))).all())
    True
    """
    only("export.save", "opset_version", opset_version, None, "a file names its own version")
    if not isinstance(ep, ExportedProgram):
        raise TypeError(
            f"The 'ep' parameter must be an instance of 'ExportedProgram', got "
            f"'{type(ep).__name__}' instead."
        )
    data = to_bytes(ep, extra_files)
    if hasattr(f, "write"):
        f.write(data)
    else:
        write_atomic(f, lambda write: write(data))


def to_bytes(ep: ExportedProgram, extra_files: dict[str, Any] | None = None) -> bytes:
    plan = ep.plan
    tensors: dict[str, Any] = {}
    by_id: dict[int, str] = {}
    state = []
    for name, t in ep.state_dict.items():
        key = by_id.get(id(t))
        if key is None:
            key = by_id[id(t)] = f"state.{name}"
            tensors[key] = _storable(t)
        kind = bp.PARAMETER if isinstance(t, Parameter) else bp.BUFFER
        state.append([name, key, kind, t.requires_grad, t.dtype.is_complex])
    others = []
    for (kind, name), t in ep.tensors.items():
        if name in ep.state_dict and kind != bp.CONSTANT:
            continue
        key = f"{kind}.{name}"
        tensors[key] = _storable(t)
        others.append([name, key, kind, t.requires_grad, t.dtype.is_complex])
    graph = generators.as_words(plan.graph)
    text = str(graph)
    _check_text(graph)
    told = {
        "version": VERSION, "state": state, "others": others,
        "inputs": [vars(i) for i in plan.inputs],
        "in_shape": shapes.to_json(plan.in_shape), "in_leaves": _leaves(plan.in_leaves),
        "in_names": plan.in_names, "top_names": plan.top_names,
        "out_shape": shapes.to_json(plan.out_shape), "out_leaves": _leaves(plan.out_leaves),
        "checks": [list(c) for c in plan.checks], "guards": plan.guards,
        "ranges": {s: [r.name, r.least, r.most] for s, r in plan.ranges.items()},
        "template": None if plan.template is None else formulas.to_json(plan.template),
    }  # fmt: skip
    said = {_SIGNATURE: json.dumps(told, separators=(",", ":")), _GRAPH: text}
    for name, content in (extra_files or {}).items():
        said[_EXTRA + name] = content.decode() if isinstance(content, bytes) else str(content)
    return safetensors.save(tensors, said, digest=True)


def _check_text(graph: Graph) -> None:
    """Raise if an argument of an op has no text, before somebody has a file that can't be read."""
    for node in graph.nodes:
        for a in node.args:
            if isinstance(a, Graph):
                _check_text(a)
            elif static_text(a).startswith("<"):
                raise ExportError(
                    f"save: {node.op.qualified} has a {type(a).__name__} among its arguments, "
                    "which has no text"
                )


def _storable(t: Any) -> Any:
    """The elements in memory of their own; complex numbers as pairs (the format lacks most)."""
    made = t.detach()
    if made.dtype.is_complex:
        made = lu.view_as_real(made.resolve_conj() if hasattr(made, "resolve_conj") else made)
    return made.contiguous().clone()


def _leaves(leaves: list[Any]) -> list[Any]:
    found: list[Any] = []
    for x in leaves:
        if x is bp.TENSOR:
            found.append(None)
        elif isinstance(x, FORMULAS):
            found.append({"size": repr(x)})
        elif isinstance(x, lu.Size):
            found.append({"sizes": list(x)})
        else:
            text = static_text(x)
            if text.startswith("<"):
                raise ExportError(f"save: {type(x).__name__} among the arguments has no text")
            found.append(text)
    return found


# ---- reading ------------------------------------------------------------------------------------


_OF_USERS = "ops."
"""How names of operators begin that users define."""


def load(
    f: Any, *, extra_files: dict[str, Any] | None = None, expected_opset_version: Any = None
) -> ExportedProgram:
    """Load what `save` wrote. Whatever the bytes are, the answer is a program or a `LoadError`."""
    only(
        "export.load", "expected_opset_version", expected_opset_version, None,
        "a file names its own version, and one that is not known is refused",
    )  # fmt: skip
    if hasattr(f, "read"):
        content = f.read()
    else:
        with open(os.fspath(f), "rb") as file:
            content = file.read()
    return from_bytes(content, extra_files)


def from_bytes(content: bytes, extra_files: dict[str, Any] | None = None) -> ExportedProgram:
    if content[:4] == b"PK\x03\x04":
        raise UnsupportedFileError(
            "this is a zip file, as PyTorch's own torch.jit.save and torch.export.save write them: "
            "their programs are not read. Load the weights (torch.load) into the module, and "
            "export it here."
        )
    said, _, _ = safetensors._header(np.frombuffer(content, np.uint8))
    if _SIGNATURE not in said or _GRAPH not in said:
        raise UnsupportedFileError(
            "this safetensors file holds tensors but no exported program (torch.export.save "
            "writes those)"
        )
    if safetensors.DIGEST not in said:
        raise CorruptFileError("an exported program without a checksum: the file is damaged")
    tensors = safetensors.load(content)
    if max(len(said[_SIGNATURE]), len(said[_GRAPH])) > LARGEST_TEXT:
        raise CorruptFileError("the graph is larger than any program")
    try:
        made = _program(json.loads(said[_SIGNATURE]), said[_GRAPH], tensors)
    except LoadError:
        raise
    except ir_text.UnknownOpError as error:
        if not error.name.startswith(_OF_USERS):
            raise CorruptFileError(f"the program in the file is damaged: {error}") from error
        raise UnsupportedFileError(
            f"the program calls the operator torch.{error.name}, which is not defined in this "
            "process: run or import what defines it (torch.library, cpp_extension) before"
        ) from error
    except Exception as error:  # whatever a damaged file makes the parts complain about
        raise CorruptFileError(
            f"the program in the file is damaged: {type(error).__name__}: {str(error)[:200]}"
        ) from error
    for name in extra_files or ():
        assert extra_files is not None
        extra_files[name] = said.get(_EXTRA + name, "")
    return made


def _program(told: Any, text: str, tensors: dict[str, Any]) -> ExportedProgram:
    if told["version"] != VERSION:
        raise UnsupportedFileError(f"a program of version {told['version']}, this reads {VERSION}")
    _check_depth(text)
    graph = generators.as_objects(ir_text.parse(text))
    verify(graph, deep=True)
    check_graph(graph)
    plan = bp.Blueprint(
        graph,
        [_input(row) for row in told["inputs"]],
        shapes.from_json(told["in_shape"]),
        _read_leaves(told["in_leaves"], None),
        [str(n) for n in told["in_names"]],
        shapes.from_json(told["out_shape"]),
        [],
        checks=[(str(k), str(t)) for k, t in told["checks"]],
        top_names=[str(n) for n in told["top_names"]],
        guards=[str(g) for g in told["guards"]],
    )
    if told["template"] is not None:
        plan.template = formulas.from_json(told["template"], graph)
        plan.ranges = {str(s): _range(row) for s, row in told["ranges"].items()}
        if plan.ranges.keys() != plan.template.symbols.keys():
            raise CorruptFileError("the ranges of sizes are damaged")
    plan.out_leaves = _read_leaves(told["out_leaves"], plan.template)
    _check_plan(plan)
    state: dict[str, Any] = {}
    held: dict[tuple[str, str], Any] = {}
    metas = {
        (i.kind, i.target): v.meta
        for v, i in zip(graph.inputs, plan.inputs, strict=True)
        if i.kind != bp.ARGUMENT
    }
    made: dict[str, Any] = {}
    for name, key, kind, needs_grad, is_complex in [*told["state"], *told["others"]]:
        if key not in made:
            made[key] = _tensor(tensors[key], kind, needs_grad, is_complex, metas.get((kind, name)))
        held[kind, name] = made[key]
    for name, key, *_ in told["state"]:
        state[name] = made[key]
    ep = ExportedProgram(plan, {k: held[k] for k in metas}, state)
    ep.check()
    return ep


def _tensor(t: Any, kind: str, needs_grad: bool, is_complex: bool, meta: TensorMeta | None) -> Any:
    found = lu.view_as_complex(t) if is_complex else t
    if meta is not None and found._meta is not meta:
        if tuple(meta.shape) != tuple(found.shape) or str(meta.device) != HOST:
            raise CorruptFileError("a tensor of the file has another shape than the graph says")
        laid = new_tensor(make_meta(found.dtype, tuple(meta.shape), meta.strides, meta.device))
        found = laid.copy_(found)
    if kind == bp.PARAMETER:
        return Parameter(found, requires_grad=bool(needs_grad))
    return found


def _input(row: Any) -> bp.Input:
    made = bp.Input(
        str(row["kind"]),
        str(row["name"]),
        str(row["target"]),
        int(row["leaf"]),
        bool(row["persistent"]),
        bool(row["requires_grad"]),
        bool(row["fresh"]),
    )
    if made.kind not in (bp.PARAMETER, bp.BUFFER, bp.CONSTANT, bp.ARGUMENT):
        raise CorruptFileError(f"an input of an unknown kind, {made.kind[:40]!r}")
    parts = made.target.split(".")
    if made.kind != bp.ARGUMENT and not all(parts):
        raise CorruptFileError(f"{made.target[:40]!r} is no name of a tensor")
    return made


def _range(row: Any) -> bp.Range:
    name, least, most = row
    if type(least) is not int or type(most) is not int or not 0 <= least <= most:
        raise CorruptFileError("the range of a size is damaged")
    return bp.Range(str(name), least, most)


def _read_leaves(told: Any, template: Any) -> list[Any]:
    names = set()
    if template is not None:
        names = set(template.symbols)
    found: list[Any] = []
    for x in told:
        if x is None:
            found.append(bp.TENSOR)
        elif type(x) is dict and "size" in x:
            found.append(formulas.expression(x["size"], names))
        elif type(x) is dict:
            found.append(lu.Size([int(n) for n in x["sizes"]]))
        else:
            _check_depth(x)
            found.append(ir_text.parse_static(x))
    return found


def _check_plan(plan: bp.Blueprint) -> None:
    """The parts of a plan fit each other."""
    counts = [
        (len(plan.inputs), len(plan.graph.inputs)),
        (len(plan.in_leaves), shapes.count_leaves(plan.in_shape)),
        (len(plan.in_names), len(plan.in_leaves)),
        (len(plan.out_leaves), shapes.count_leaves(plan.out_shape)),
        (plan.out_leaves.count(bp.TENSOR) + len(plan.checks), len(plan.graph.outputs)),
    ]
    if any(a != b for a, b in counts):
        raise CorruptFileError("the signature does not fit the graph")
    (_, positional), named = plan.in_shape[1]
    if len(plan.top_names) != len(positional) + len(named[1]) or not issubclass(named[0], dict):
        raise CorruptFileError("the names of the arguments are damaged")
    for i, v in zip(plan.inputs, plan.graph.inputs, strict=True):
        if not isinstance(v.meta, TensorMeta):
            raise CorruptFileError("an input of the graph is no tensor")
        if i.kind == bp.ARGUMENT and plan.in_leaves[i.leaf] is not bp.TENSOR:
            raise CorruptFileError(f"{i.name[:40]!r} is no tensor among the arguments")
    if any(kind not in bp.RAISED for kind, _ in plan.checks):
        raise CorruptFileError("a check of values is damaged")
    if plan.template is not None:
        places = [i for i, _ in plan.template.symbols.values()]
        if any(plan.inputs[i].kind != bp.ARGUMENT for i in places):
            raise CorruptFileError("a size is read at a tensor that is no argument")
    plan.at(plan.example_sizes())


def _check_depth(text: str) -> None:
    """Brackets in brackets in brackets are an attack on the parser's stack."""
    depth = 0
    for c in text:
        if c in "([{":
            depth += 1
            if depth > _MOST_DEPTH:
                raise CorruptFileError("the graph is nested too deeply")
        elif c in ")]}":
            depth -= 1
