"""Arguments of a call against a schema: every argument in order, each as its type says."""

from __future__ import annotations

import numbers
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base.device import device
from lucerne._src.ir.overload import SignatureError
from lucerne._src.ir.schema import MISSING, Argument, Schema, SchemaType
from lucerne._src.tensor.base import TensorBase


def bind(schema: Schema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Values for all arguments of the schema, defaults filled in; lists become tuples."""
    wanted = schema.arguments
    positional = [a for a in wanted if not a.kwarg_only]
    if len(args) > len(positional):
        raise SignatureError(
            f"{schema.name}() expected at most {len(positional)} argument(s) but received "
            f"{len(args) + len(kwargs)} argument(s). Declaration: {schema}"
        )
    left = dict(kwargs)
    found: list[Any] = []
    for i, a in enumerate(wanted):
        if i < len(args) and not a.kwarg_only:
            if a.name in left:
                raise SignatureError(
                    f"{schema.name}() got multiple values for argument '{a.name}'. Declaration: "
                    f"{schema}"
                )
            value = args[i]
        elif a.name in left:
            value = left.pop(a.name)
        elif a.default_value is not MISSING:
            found.append(_default(a))
            continue
        else:
            raise SignatureError(
                f"{schema.name}() is missing value for argument '{a.name}'. Declaration: {schema}"
            )
        found.append(_converted(schema, i, a, value))
    if left:
        raise SignatureError(
            f"Unknown keyword argument '{next(iter(left))}' for operator '{schema.name}'. Schema: "
            f"{schema}"
        )
    return tuple(found)


def _default(a: Argument) -> Any:
    value = a.default_value
    if a.type.name == "ScalarType" and isinstance(value, str):
        return dt.by_name(value)
    if a.type.name == "Device" and isinstance(value, str):
        return device(value)
    if a.type.is_list and a.type.size is not None and isinstance(value, (int, float)):
        return (value,) * a.type.size
    return value


_REFUSED = object()


def _converted(schema: Schema, position: int, a: Argument, value: Any) -> Any:
    made = _as_type(a.type, value)
    if made is _REFUSED:
        raise SignatureError(
            f"{schema.name}() Expected a value of type '{_spelled(a.type)}' for argument "
            f"'{a.name}' but instead found type '{type(value).__name__}'.\nPosition: {position}\n"
            f"Value: {_short(value)}\nDeclaration: {schema}"
        )
    return made


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 200 else text[:200] + "..."


def _spelled(type: SchemaType) -> str:
    """A type as torch's messages name it."""
    name = {"SymInt": "int", "Scalar": "number", "ScalarType": "int"}.get(type.name, type.name)
    listed = f"List[{name}]" if type.is_list else name
    return f"Optional[{listed}]" if type.optional else listed


def _as_type(type: SchemaType, value: Any) -> Any:
    if value is None:
        return None if type.optional else _REFUSED
    if not type.is_list:
        return _single(type.name, value)
    if type.size is not None and not isinstance(value, (list, tuple)):
        value = (value,) * type.size
    if not isinstance(value, (list, tuple)):
        return _REFUSED
    items = [None if x is None and type.element_optional else _single(type.name, x) for x in value]
    return _REFUSED if any(x is _REFUSED for x in items) else tuple(items)


def _single(name: str, value: Any) -> Any:
    read = _READERS.get(name)
    return value if read is None else read(value)


def _tensor(value: Any) -> Any:
    takes = isinstance(value, TensorBase) or hasattr(type(value), "__torch_function__")
    return value if takes else _REFUSED


def _integer(value: Any) -> Any:
    if type(value) is int:
        return value
    if isinstance(value, TensorBase):
        return int(value)  # type: ignore[call-overload]
    if isinstance(value, (bool, numbers.Integral)) or hasattr(value, "__index__"):
        return int(value)
    return _REFUSED


def _float(value: Any) -> Any:
    if type(value) is float:
        return value
    if isinstance(value, TensorBase):
        return float(value)  # type: ignore[arg-type]
    return float(value) if isinstance(value, numbers.Real) else _REFUSED


def _scalar(value: Any) -> Any:
    if isinstance(value, TensorBase):
        return value.item()  # type: ignore[attr-defined]
    return value if isinstance(value, (bool, int, float, complex, numbers.Number)) else _REFUSED


def _boolean(value: Any) -> Any:
    return bool(value) if isinstance(value, (bool, numbers.Integral)) else _REFUSED


_READERS: dict[str, Any] = {
    "Tensor": _tensor,
    "int": _integer,
    "SymInt": _integer,
    "float": _float,
    "bool": _boolean,
    "SymBool": _boolean,
    "Scalar": _scalar,
    "complex": lambda v: complex(v) if isinstance(v, numbers.Complex) else _REFUSED,
    "str": lambda v: v if isinstance(v, str) else _REFUSED,
    "ScalarType": lambda v: v if isinstance(v, dt.dtype) else _REFUSED,
    "Device": lambda v: device(v) if isinstance(v, (str, device, int)) else _REFUSED,
}


def tensors_of(values: tuple[Any, ...]) -> list[Any]:
    """The tensors among bound values, those in lists as well."""
    flat = [x for v in values for x in (v if isinstance(v, (tuple, list)) else (v,))]
    return [x for x in flat if isinstance(x, TensorBase)]


def split(schema: Schema, values: tuple[Any, ...]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments as the user's function takes them; tuples become lists."""
    given: list[Any] = []
    named: dict[str, Any] = {}
    for a, v in zip(schema.arguments, values, strict=True):
        v = list(v) if a.type.is_list and isinstance(v, tuple) else v
        if a.kwarg_only:
            named[a.name] = v
        else:
            given.append(v)
    return given, named
