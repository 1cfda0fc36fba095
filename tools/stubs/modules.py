"""One stub for each module that fills itself from the op table, and one for Tensor's members."""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import lucerne
from lucerne._src.ir import op as op_
from lucerne._src.ir.define import fronts
from lucerne._src.ir.namespaces import public_names
from tools.stubs import layout, members
from tools.stubs.facts import (
    OTHER_RESULTS,
    UNTOLD,
    Signature,
    annotated,
    of_schema,
    schema_name,
    schemas,
)
from tools.stubs.signatures import closed_over, parameters, signatures

PACKAGE = lucerne.__name__
TYPES = ("Generator", "Size", "Tensor", "TypedStorage", "UntypedStorage")
TYPES += ("device", "dtype", "layout", "memory_format", "qscheme")


def home(kind: type) -> str:
    """The module that defines a class (Tensor says that it is of `lucerne`, as torch's does)."""
    if kind is lucerne.Tensor:
        return lucerne.Tensor.detach.__module__
    return kind.__module__


def homes() -> dict[str, str]:
    """Where a stub finds the names that annotations use."""
    found = {name: home(getattr(lucerne, name)) for name in TYPES}
    base = lucerne.Tensor.__base__.__name__
    found[base] = imports_of(sys.modules[found["Tensor"]])[base]
    found |= dict.fromkeys(members.ALIASES, members.module(found["Tensor"]))
    return {**found, "return_types": PACKAGE}


def path_of(module: str) -> Path:
    """The stub that stands beside a module."""
    return Path(inspect.getfile(sys.modules[module])).with_suffix(".pyi")


def stubs() -> dict[Path, str]:
    """Every stub, by its path."""
    known = homes()
    tensor = known["Tensor"]
    found = {path_of(tensor).with_name(members.FILE): members.stub(known)}
    found[path_of(f"{PACKAGE}.return_types")] = _return_types(known)
    for namespace in namespaces():
        module = sys.modules[".".join(filter(None, (PACKAGE, namespace)))]
        found[path_of(module.__name__)] = _module(module, namespace, known)
    return found


def namespaces() -> list[str]:
    """Namespaces of the table that are modules; `Tensor` and `ops.aten` are reached otherwise."""
    told = {entry.namespace for entry in (*op_.table().values(), *fronts().values())}
    filled = [n for n in told if _is_filled(sys.modules.get(f"{PACKAGE}.{n}"), n)]
    return sorted({"", *filled})


def _is_filled(module: ModuleType | None, namespace: str) -> bool:
    return module is not None and public_names(namespace).keys() <= vars(module).keys()


# ---- modules --------------------------------------------------------------------------------


def _module(module: ModuleType, namespace: str, known: dict[str, str]) -> str:
    table = public_names(namespace)
    reexports: set[tuple[str, str, str]] = set()
    values: list[str] = []
    classes: list[str] = []
    functions: list[str] = []
    for name, value in sorted({**_public(module), **_of_table(module, table)}.items()):
        if value is not None and table.get(name) is value:
            functions += layout.function(name, signatures(value, schema_name(namespace, name)))
        elif isinstance(value, ModuleType):
            reexports.add((*_split(value.__name__), name))
        elif isinstance(value, type):
            _place_class(name, value, reexports, classes)
        elif inspect.isroutine(value) or hasattr(value, "__wrapped__"):
            _place_function(name, value, reexports, functions)
        else:
            values.append(f"{name}: {_value_type(value)}")
    renamed = {row for row in reexports if row[1] != row[2]}
    reexports -= renamed  # a stub shows `from m import a as a` alone: another name is assigned
    values += [f"{here} = {there}" for _, there, here in sorted(renamed)]
    places = known | {there: origin for origin, there, _ in renamed}
    body = "\n".join((*values, *classes, *functions))
    bound = {name for _, _, name in reexports}
    imported = layout.imports(body, places, bound, reexports)
    return layout.module(_first_line(module), imported, [values, classes, functions])


def _public(module: ModuleType) -> dict[str, Any]:
    """The names that a module shows: what it imported for itself is left out."""
    names = {name: value for name, value in vars(module).items() if _is_shown(name, value)}
    # Python puts every module that anyone imported into its package: those here by name count.
    written = imports_of(module)
    for name in [n for n, v in names.items() if isinstance(v, ModuleType) and n not in written]:
        del names[name]
    for name in (*getattr(module, "_LAZY_MODULES", ()), *getattr(module, "_LAZY_NAMES", ())):
        names[name] = getattr(module, name)
    return names


def _of_table(module: ModuleType, table: dict[str, Any]) -> dict[str, Any]:
    """Functions of the table that a module has under their names, the private ones too."""
    return {name: f for name, f in table.items() if vars(module).get(name) is f}


def imports_of(module: ModuleType) -> dict[str, str]:
    """By name: the modules that a module's source imports it from."""
    tree = ast.parse(inspect.getsource(module))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: node.module or "" for node in found for alias in node.names}


def _is_shown(name: str, value: Any) -> bool:
    if name.startswith("__") or name in ("Any", "TYPE_CHECKING", "annotations"):
        return False
    if isinstance(value, (dict, frozenset)):
        return False
    if name.startswith("_"):
        return inspect.isfunction(value) and value.__name__ == name
    return True


def _split(module: str) -> tuple[str, str]:
    parent, _, child = module.rpartition(".")
    return parent, child


def _place_class(
    name: str, kind: type, reexports: set[tuple[str, str, str]], classes: list[str]
) -> None:
    """A class is imported from where it is; the old typed names are made by a metaclass."""
    if type(kind).__name__ == "tensortype":
        classes.append(f"class {name}(Tensor): ...")
    elif type(kind).__name__ == "_StorageType":
        classes.append(f"class {name}(TypedStorage): ...")
    else:
        reexports.add((home(kind), kind.__name__, name))


def _place_function(
    name: str, function: Any, reexports: set[tuple[str, str, str]], functions: list[str]
) -> None:
    """A function that says what it returns is imported; another one is described here."""
    inner = inspect.unwrap(function)
    told = annotated(inner.__annotations__.get("return", inspect.Parameter.empty))
    spelled = closed_over(function, "name")
    if name.startswith("_foreach_"):
        functions += layout.function(name, [_over_lists(inner)])
    elif isinstance(spelled, str) and spelled == name and hasattr(lucerne.Tensor, name):
        functions += layout.function(name, members.as_functions(name))
    elif (there := _name_there(function, inner.__module__)) and (
        told not in UNTOLD or not (schemas(name) or name in OTHER_RESULTS)
    ):
        reexports.add((inner.__module__, there, name))
    else:
        functions += layout.function(name, signatures(function, name))


def _name_there(function: Any, module: str) -> str:
    """What the module that defines a function calls it; empty: it is made elsewhere."""
    return next((k for k, v in vars(sys.modules[module]).items() if v is function), "")


def _over_lists(function: Any) -> Signature:
    """`_foreach_*`: lists of tensors, with an operand for each or for all."""
    first, *rest = parameters(function, ())
    lists = first._replace(type="Sequence[Tensor]")
    return Signature((lists, *rest), "tuple[Tensor, ...]")


def _value_type(value: Any) -> str:
    if value is None or isinstance(value, str):
        return "None" if value is None else "str"
    return annotated(type(value).__name__)


def _first_line(module: ModuleType) -> str:
    return (module.__doc__ or "").splitlines()[0]


# ---- named results --------------------------------------------------------------------------


def _return_types(known: dict[str, str]) -> str:
    """Fields by torch's schemas: almost all of them are tensors."""
    module = lucerne.return_types
    classes = []
    for kind in sorted(module.all_return_types, key=lambda kind: kind.__name__):
        returns = next(
            (s.returns for s in schemas(kind.__name__) if len(s.returns) == len(kind._fields)), ()
        )
        types = [of_schema(r.type, True) for r in returns] or ["Tensor"] * len(kind._fields)
        fields = [f"    {field}: {t}" for field, t in zip(kind._fields, types, strict=True)]
        classes.append("\n".join([f"class {kind.__name__}(NamedTuple):", *fields]))
    values = ["all_return_types: list[type[tuple[Any, ...]]]"]
    imported = layout.imports("\n".join([*values, *classes]), known, set(), set())
    spaced = "\n\n".join(classes).split("\n")
    return layout.module(_first_line(module), imported, [values, spaced])
