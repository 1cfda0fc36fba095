"""Signatures of what is really there: functions of the table and others, as methods too."""

from __future__ import annotations

import inspect
import json
from typing import Any, NamedTuple

from lucerne._src.ir.op import COMPOSITE, POINTWISE, TENSOR, Op
from lucerne._src.ir.schema import Schema
from lucerne._src.ir.signature import MISSING
from tools.stubs.facts import (
    ANY,
    NUMBER,
    OTHER_RESULTS,
    UNTOLD,
    Function,
    Parameter,
    Signature,
    annotated,
    of_schema,
    parameter_type,
    result_of,
    results,
    schemas,
    union,
)

POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
KEYWORD = inspect.Parameter.KEYWORD_ONLY
STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
SELF = Parameter("self", POSITIONAL, "")


def signatures(function: Function, name: str) -> list[Signature]:
    """The forms of a function; `name`: what torch's dispatcher calls it."""
    inner = inspect.unwrap(function)
    known = schemas(name) or schemas(inner.__name__)
    op = getattr(inner, "op", None)
    read = _of_op(op, known) if op is not None else parameters(inner, known)
    told = (op.body if op is not None else inner).__annotations__.get("return")
    result = annotated(told)
    if result not in UNTOLD:
        return [_with_out(Signature(read, result))]
    found = results(known)
    if len(found) > 1:
        takes_out = any(p.name == "out" for p in read)
        return [_with_out(_of_schema(s, takes_out)) for s in known]
    return [_with_out(Signature(read, found[0] if found else OTHER_RESULTS.get(name, ANY)))]


def _of_op(op: Op, known: tuple[Schema, ...]) -> tuple[Parameter, ...]:
    found = []
    for i, p in enumerate(op.params):
        own = annotated(p.annotation)
        if _may_be_number(op, i, bool(known)):
            own = union([own, NUMBER])
        kind = KEYWORD if p.keyword_only else POSITIONAL
        found.append(_Read(p.name, kind, own, p.default))
    if op.out:
        found.append(_Read("out", KEYWORD, ANY, None))
    return _typed(found, known)


def _may_be_number(op: Op, i: int, told: bool) -> bool:
    """Whether a Python number may stand for an operand (see `numbers` in _src/ir/define.py).

    `told`: torch's schemas say it; a composite hands on what it gets.
    """
    if op.params[i].kind != TENSOR or op.kind != POINTWISE:
        return op.params[i].kind == TENSOR and op.kind == COMPOSITE and i > 0 and not told
    if op.numbers == "some":
        return op.kinds.count(TENSOR) > 1
    return op.numbers == "all" or (op.numbers == "rest" and i > 0)


def parameters(function: Function, known: tuple[Schema, ...]) -> tuple[Parameter, ...]:
    """The parameters of a Python function."""
    given = inspect.signature(function).parameters.values()
    return _typed([_Read(p.name, p.kind, annotated(p.annotation), p.default) for p in given], known)


class _Read(NamedTuple):
    """A parameter as code has it: `own` is its annotation there."""

    name: str
    kind: Any
    own: str
    default: Any


def _typed(read: list[_Read], known: tuple[Schema, ...]) -> tuple[Parameter, ...]:
    positional = [p.name for p in read if p.kind is POSITIONAL]
    return tuple(_parameter(p, known, positional) for p in read)


def _parameter(p: _Read, known: tuple[Schema, ...], positional: list[str]) -> Parameter:
    if p.kind in STARRED:
        return Parameter(p.name, p.kind, p.own)
    type = parameter_type(p.name, p.own, known, positional)
    if type == ANY and p.name in ("input", "self"):
        type = "Tensor"
    if p.default is MISSING:
        return Parameter(p.name, p.kind, type)
    if p.default is None or isinstance(p.default, str):  # `norm(p="fro")`: schemas know numbers
        type = union([type, "None" if p.default is None else "str"])
    return Parameter(p.name, p.kind, type, shown(p.default))


def shown(default: Any) -> str:
    """A default as Python spells it, where that is short; dots for an object."""
    if isinstance(default, tuple) and all(isinstance(d, (int, float)) for d in default):
        return repr(default)
    if isinstance(default, str):
        return json.dumps(default)
    plain = type(default) in (bool, int, float, type(None))
    return repr(default) if plain and repr(default) not in ("inf", "-inf", "nan") else "..."


def _of_schema(schema: Schema, takes_out: bool) -> Signature:
    """One overload, for a name whose overloads differ in what they return."""
    found = []
    for a in schema.arguments:
        kind = KEYWORD if a.kwarg_only else POSITIONAL
        default = shown(a.default_value) if a.has_default_value() else ""
        spelled = "input" if a.name == "self" else a.name
        found.append(Parameter(spelled, kind, of_schema(a.type), default))
    if takes_out:
        found.append(Parameter("out", KEYWORD, ANY, "None"))
    return Signature(tuple(found), result_of(schema))


def _with_out(signature: Signature) -> Signature:
    """`out=` takes what the function returns."""
    result = signature.result
    if result == "Tensor" or result == ANY:
        kind = "Tensor | None" if result == "Tensor" else ANY
    else:
        kind = "Sequence[Tensor] | None"
    changed = [p._replace(type=kind) if p.name == "out" else p for p in signature.parameters]
    return signature._replace(parameters=tuple(changed))


def as_method(signature: Signature) -> Signature:
    """The same as a method: the tensor comes first, and there is no `out=`."""
    names = [p.name for p in signature.parameters]
    tensor = "input" if "input" in names else names[0]
    rest = tuple(
        p for p in signature.parameters if p.kind in STARRED or p.name not in (tensor, "out")
    )
    return Signature((SELF, *rest), signature.result)


def closed_over(function: Function, name: str) -> Any:
    """What a function made by another one holds under a name."""
    inner = inspect.unwrap(function)
    free = inner.__code__.co_freevars
    if name not in free or inner.__closure__ is None:
        return None
    return inner.__closure__[free.index(name)].cell_contents
