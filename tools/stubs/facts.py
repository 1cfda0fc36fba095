"""Types of parameters and results: the entry's own annotation, and torch's schemas of that name.

An annotation of an op says how the op reads an argument (`Tensor`, `IntList`), a schema what torch
takes there; a stub allows both. What neither tells is `Any`.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import lucerne
from lucerne._src.ir.schema import Argument, Schema, SchemaType
from lucerne._src.ops import aten

ANY = "Any"
# `lucerne.float` is a dtype and `Tensor.int` a method, so stubs spell the builtins another way.
SHADOWED = ("bool", "complex", "float", "int")
NUMBER = "Number"
SIZES = "Sizes"
OUR_WORDS = {
    "Scalar": NUMBER,
    "IntList": SIZES,
    "Dtype": "dtype",
    "dt.dtype": "dtype",
    "sh.Size": "Size",
    "TensorList": "Sequence[Tensor]",
    "Opaque": ANY,
    **{name: f"_{name}" for name in SHADOWED},
}
SCHEMA_WORDS = {
    "Tensor": "Tensor",
    "int": "_int",
    "SymInt": "_int",
    "float": "_float",
    "bool": "_bool",
    "SymBool": "_bool",
    "complex": "_complex",
    "str": "str",
    "Scalar": NUMBER,
    "ScalarType": "dtype",
    "Device": "Device",
    "Layout": "layout",
    "MemoryFormat": "memory_format",
    "Generator": "Generator",
    "QScheme": "qscheme",
}
# What parameters of these names are everywhere, where nothing nearer says it.
BY_NAME = {
    "dtype": "dtype | None",
    "device": "Device | None",
    "layout": "layout | None",
    "generator": "Generator | None",
    "memory_format": "memory_format | None",
}
_TENSORS = """
    _indices _values as_tensor asarray ccol_indices ccol_indices_copy coalesce col_indices
    col_indices_copy crow_indices crow_indices_copy dequantize from_dlpack from_file from_numpy
    frombuffer get_rng_state hspmm indices indices_copy int_repr pin_memory q_per_channel_scales
    q_per_channel_zero_points quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic
    row_indices row_indices_copy smm sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor
    sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor sparse_mask sspaddmm tensor values
    values_copy
"""
OTHER_RESULTS = {
    **dict.fromkeys(_TENSORS.split(), "Tensor"),
    "_nnz": "_int",
    "is_coalesced": "_bool",
    "manual_seed": "Generator",
    "q_per_channel_axis": "_int",
    "q_scale": "_float",
    "q_zero_point": "_int",
    "qscheme": "qscheme",
}
"""Results of what is no entry of the table and cannot name its own: it stands below Tensor, or is
made by another function, or only refuses, for tensors of another kind than a plain one."""
UNTOLD = (ANY, "NoReturn")


class Parameter(NamedTuple):
    """One parameter as a stub has it."""

    name: str
    kind: Any
    type: str
    default: str = ""


class Signature(NamedTuple):
    parameters: tuple[Parameter, ...]
    result: str


def union(texts: Iterable[str]) -> str:
    """One type for several, `None` last; `Any` swallows the rest."""
    parts = [part for text in texts for part in text.split(" | ")]
    if ANY in parts:
        return ANY
    found = dict.fromkeys(part for part in parts if part != "None")
    if SIZES in found:  # holds both
        found = {k: None for k in found if k not in ("_int", "Sequence[_int]")}
    if NUMBER in found:
        found = {k: None for k in found if k not in ("_bool", "_int", "_float", "_complex")}
    return " | ".join([*found, *(["None"] if "None" in parts else [])])


def annotated(annotation: Any) -> str:
    """An annotation of the package in a stub's words."""
    if annotation is inspect.Parameter.empty or annotation is None:
        return ANY
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"[A-Za-z_][\w.]*", lambda m: OUR_WORDS.get(m.group(), m.group()), text)


# ---- torch's schemas ----------------------------------------------------------------------------


@functools.cache
def schemas(name: str) -> tuple[Schema, ...]:
    """torch's schemas of an operator, without those of named dimensions and of `out=`."""
    packet = getattr(lucerne.ops.aten, name, None) if name in aten._written() else None
    if packet is None:
        return ()
    found = [getattr(packet, overload)._schema for overload in packet.overloads()]
    return tuple(s for s in found if not any(_elsewhere(a) for a in s.arguments))


def _elsewhere(argument: Argument) -> bool:
    return argument.type.name == "Dimname" or (argument.kwarg_only and argument.is_write)


def of_schema(type: SchemaType, is_result: bool = False) -> str:
    """A type of a schema in a stub's words."""
    text = SCHEMA_WORDS.get(type.name, ANY)
    if type.element_optional:
        text = f"{text} | None"
    if type.is_list:
        one = text
        text = f"tuple[{one}, ...]" if is_result else f"Sequence[{one}]"
        if not is_result and type.size is not None and type.name != "Tensor":
            text = SIZES if one == "_int" else f"{one} | {text}"
    return f"{text} | None" if type.optional else text


def result_of(schema: Schema) -> str:
    """What a schema returns: a tensor, a number, a tuple, or one of `return_types`."""
    types = [of_schema(r.type, True) for r in schema.returns]
    if not types:
        return "None"
    if len(types) == 1:
        return types[0]
    name = schema.name.removeprefix("aten::")
    kind = getattr(lucerne.return_types, name, None)
    if kind is not None and len(kind._fields) == len(types):
        return f"return_types.{name}"
    return f"tuple[{', '.join(types)}]"


def results(known: tuple[Schema, ...]) -> list[str]:
    """The kinds of results that overloads differ in."""
    return list(dict.fromkeys(result_of(s) for s in known))


def parameter_type(
    name: str, own: str, known: tuple[Schema, ...], positional: Sequence[str]
) -> str:
    """What may be given for a parameter: what the op's annotation names, and what torch takes.

    torch takes what schemas have under that name, and, in the same place, what some have under a
    name that our positional parameters lack: a number for `src`.
    """
    at = positional.index(name) if name in positional else -1
    arguments = [(i, a) for s in known for i, a in enumerate(s.arguments)]
    named = [
        of_schema(a.type) for i, a in arguments if a.name == name or (a.name, i) == ("self", at)
    ]
    if own == ANY and not named:
        return BY_NAME.get(name, ANY)
    placed = [a for i, a in arguments if i == at and not a.kwarg_only and a.name not in positional]
    return union([*([] if own == ANY else [own]), *named, *(of_schema(a.type) for a in placed)])


def schema_name(namespace: str, name: str) -> str:
    """How torch's dispatcher calls a function of a namespace: `linalg.svd` is `linalg_svd`."""
    return f"{namespace}_{name}" if namespace in ("linalg", "special", "fft") else name


Function = Callable[..., Any]
