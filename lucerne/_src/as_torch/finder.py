"""The import hook: `torch.x` is the very module `lucerne.x`, or a module of stubs from the table.

The list of modules is closed. What is not on it raises `ModuleNotFoundError`, as in a torch without
it: libraries probe for hardware and features that way, and an answer to everything would be wrong.
"""

from __future__ import annotations

import importlib.machinery
import sys
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from typing import Any

from lucerne._src.as_torch import names
from lucerne._src.as_torch.kinds import NameTable
from lucerne._src.base.homes import TorchName
from lucerne._src.base.process import forks

OURS, THEIRS = "lucerne", "torch"
MARK = "_is_lucerne"
"""A name in the package that `lucerne torch install` writes."""


class TorchFinder(MetaPathFinder):
    """What stands on `sys.meta_path`: it answers for `torch`, and sees our own modules load."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        root, _, rest = fullname.partition(".")
        if root == OURS and rest in names.OWN:
            return _seen_loading(fullname, path)
        if fullname in names.BESIDE:
            return importlib.machinery.ModuleSpec(fullname, BesideLoader(), origin=OURS)
        if root != THEIRS:
            return None
        if rest and rest not in names.OWN and rest not in names.SPACES:
            if path is not None and importlib.machinery.PathFinder.find_spec(fullname, path):
                # A file of ours that torch does not have: Python would load it a second time.
                raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
            return None
        return importlib.machinery.ModuleSpec(
            fullname, TorchLoader(), origin=OURS, is_package=_is_package(rest)
        )

    def find_distributions(self, context: Any = None) -> Iterable[Any]:
        """The metadata of torch, which libraries ask for its version.

        `importlib.metadata` calls it; where our distribution is installed, that one answers.
        """
        wanted = None if context is None else context.name
        if wanted not in (None, THEIRS) or _package() is not None:
            return []
        return [forks.import_module("lucerne._src.as_torch.metadata").TorchMetadata()]


class TorchLoader(Loader):
    """Puts a module of ours, or one made of the table, where `torch.x` is looked for."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        rest = spec.name.partition(".")[2]
        if rest and rest not in names.OWN:
            return _stub_module(spec.name, rest)
        return None  # a placeholder, for which `exec_module` puts the real one

    def exec_module(self, module: types.ModuleType) -> None:
        rest = module.__name__.partition(".")[2]
        if rest and rest not in names.OWN:
            return
        sys.modules[module.__name__] = forks.import_module(f"{OURS}.{rest}" if rest else OURS)


class BesideLoader(Loader):
    """Makes a package that torch's distribution brings beside torch, of its table."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        found = names.BESIDE[spec.name]
        module = types.ModuleType(spec.name, f"`{spec.name}` as libraries name it. {found.why}")
        _add_names(module, spec.name, spec.name, found)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing more to do: names are made when they are asked for."""
        assert module.__name__ in names.BESIDE


class _SeenLoader(importlib.machinery.SourceFileLoader):
    """Loads a module of ours as always, and tells it its name in torch."""

    def exec_module(self, module: types.ModuleType) -> None:
        super().exec_module(module)
        expose(module)


def _seen_loading(name: str, path: Sequence[str] | None) -> importlib.machinery.ModuleSpec | None:
    spec = importlib.machinery.PathFinder.find_spec(name, path)
    if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
        spec.loader = _SeenLoader(spec.loader.name, spec.loader.path)
    return spec


def _is_package(rest: str) -> bool:
    """Whether a module has others inside: the import system asks for its `__path__`."""
    return not rest or any(
        name.startswith(f"{rest}.") for table in (names.OWN, names.SPACES) for name in table
    )


def expose(module: types.ModuleType) -> None:
    """Let a loaded module of ours be `torch.x`: in `sys.modules`, by its name, by its classes."""
    ours = module.__spec__.name if module.__spec__ else module.__name__
    rest = ours.partition(".")[2]
    theirs = f"{THEIRS}.{rest}" if rest else THEIRS
    sys.modules[theirs] = module
    module.__name__ = theirs
    if not hasattr(module, "__path__") and _is_package(rest):
        module.__path__ = []
    if type(vars(module).get("annotations")) is type(annotations):
        del module.annotations  # left by `from __future__`; torch.jit has a module of that name
    for name, value in list(vars(module).items()):
        if isinstance(value, (type, types.FunctionType)) and value.__qualname__ == name:
            _rename(value, ours, theirs)
    found = names.SPACES.get(rest)
    if found is not None or any(name.rpartition(".")[0] == rest for name in names.SPACES):
        _add_names(module, theirs, rest, found)


def _rename(value: Any, ours: str, theirs: str) -> None:
    """Let a class or function say where it is found in torch.

    One that stands in a file torch does not have (`nn.modules.multihead`) is at home in the module
    that shows it. What comes from the inside (`_src`) stays: the compiler knows it by its place.
    """
    home = value.__module__
    if not isinstance(home, str) or f"{home}.".startswith(f"{OURS}._src."):
        return
    hidden = home.startswith(f"{OURS}.") and home.partition(".")[2] not in names.OWN
    if home == ours:
        value.__module__ = theirs
    elif hidden and not value.__name__.startswith("_"):
        _settle_annotations(value, vars(sys.modules[home]))
        value.__module__ = theirs


def _settle_annotations(value: Any, names_there: dict[str, Any]) -> None:
    """Read annotations where they were written: `typing.get_type_hints` would look for their names
    in the module that the class or function says it is from."""
    settled = dict(value.__annotations__)
    for name in settled:
        alone = types.SimpleNamespace(__annotations__={name: settled[name]})
        try:
            settled |= typing.get_type_hints(alone, names_there, include_extras=True)
        except (NameError, TypeError):  # a name for type checkers alone
            continue
    value.__annotations__ = settled


def _add_names(module: types.ModuleType, theirs: str, rest: str, found: NameTable | None) -> None:
    """Names of the table, on top of the module's own, made when they are asked for."""
    own: Callable[[str], Any] | None = vars(module).get("__getattr__")
    own_list: Callable[[], list[str]] | None = vars(module).get("__dir__")
    inner = {n.rpartition(".")[2] for n in names.SPACES if n.rpartition(".")[0] == rest}
    rows = found.rows if found is not None else {}
    why = found.why if found is not None else ""

    def look_up(name: str) -> Any:
        if name in rows:
            made = vars(module)[name] = rows[name].make(theirs, name, why)
            return made
        if name in inner:
            return forks.import_module(f"{theirs}.{name}")
        if own is not None:
            return own(name)
        raise AttributeError(f"module {theirs!r} has no attribute {name!r}", name=name, obj=module)

    def list_names() -> list[str]:
        listed = own_list() if own_list is not None else list(vars(module))
        return sorted({*listed, *rows, *inner})

    module.__getattr__ = look_up  # type: ignore[method-assign]
    module.__dir__ = list_names  # type: ignore[method-assign]


def _stub_module(theirs: str, rest: str) -> types.ModuleType:
    """A module that exists for its names in the table alone."""
    found = names.SPACES[rest]
    module = types.ModuleType(theirs, f"`{theirs}` as libraries name it. {found.why}")
    _add_names(module, theirs, rest, found)
    return module


def install() -> None:
    """Answer `import torch` with Lucerne, in this process.

    >>> import lucerne.as_torch
    >>> lucerne.as_torch.install()  # doctest: +SKIP
    >>> import torch.nn  # doctest: +SKIP
    >>> torch is lucerne, torch.nn is lucerne.nn  # doctest: +SKIP
    (True, True)

    It raises `ImportError` where a real torch is installed or loaded: two frameworks under one name
    would mix their tensors. There, `import lucerne as torch` is the way.
    """
    if any(isinstance(finder, TorchFinder) for finder in sys.meta_path):
        return
    reason = real_torch()
    if reason:
        raise ImportError(
            f"lucerne.as_torch: {reason}. Two frameworks under one name would mix their tensors: "
            "use an environment without it, or `import lucerne as torch`.",
            name=THEIRS,
        )
    TorchName.is_ours = True
    # The deepest first: a class that several modules show is at home in the most special one.
    loaded = [name for name in names.OWN if f"{OURS}.{name}" in sys.modules]
    for name in sorted(loaded, key=lambda name: (-name.count("."), name)):
        expose(sys.modules[f"{OURS}.{name}"])
    expose(sys.modules[OURS])
    sys.meta_path.insert(0, TorchFinder())


def _package() -> importlib.machinery.ModuleSpec | None:
    """The package named torch on the path, be it ours or not."""
    return importlib.machinery.PathFinder.find_spec(THEIRS)


def real_torch() -> str:
    """Why `torch` is not ours to answer for here; empty: it is."""
    there = sys.modules.get(THEIRS)
    if there is not None and there is not sys.modules[OURS] and not hasattr(there, MARK):
        return f"torch {getattr(there, '__version__', '')} is loaded already, from {there.__file__}"
    spec = _package()
    if spec is None:
        return ""
    if spec.origin is None:
        return f"a folder named torch is on the path, {list(spec.submodule_search_locations or ())}"
    with open(spec.origin, encoding="utf-8") as file:
        if MARK in file.read(1000):
            return ""
    number = forks.import_module("lucerne._src.as_torch.metadata").version_of_torch()
    return f"torch {number} is installed here, {spec.origin}"
