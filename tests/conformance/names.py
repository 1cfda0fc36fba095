"""M12: which of torch's public names are present, and which of those does some test reach.

A name is reached if one of torch's databases calls it, or if any test mentions it; the scan reads
the tests' source.
"""

import ast
import functools
import importlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance import catalog
from tests.conformance.context import quiet
from tests.conformance.modules import samples as modules
from tests.conformance.optimizers import samples as optimizers

TESTS = Path(__file__).parents[1]

# What a training script imports: these must be there, and a test must reach them.
TRAINING = (
    "torch.nn",
    "torch.nn.functional",
    "torch.nn.init",
    "torch.nn.parameter",
    "torch.nn.parallel",
    "torch.nn.attention",
    "torch.nn.attention.flex_attention",
    "torch.nn.utils",
    "torch.nn.utils.parametrizations",
    "torch.nn.utils.parametrize",
    "torch.nn.utils.prune",
    "torch.nn.utils.rnn",
    "torch.nn.utils.stateless",
    "torch.optim",
    "torch.optim.lr_scheduler",
    "torch.optim.swa_utils",
    "torch.utils.data",
    "torch.amp",
    "torch.distributions",
    "torch.distributions.constraints",
    "torch.distributions.kl",
    "torch.distributions.transforms",
    "torch.serialization",
)

LEFT_OUT = {
    "torch": {
        "AVG, AggregationType, SUM": "how torch's monitor joins statistics, which is not here",
        "DispatchKey, Tag": "keys and tags of torch's C++ dispatcher, which ops here do not have",
        "Future": "of torch.futures and RPC, which belong to distributed",
        "ScriptFunction": "TorchScript's compiled function; lucerne.jit keeps Python functions",
        "SymBool, SymFloat": "sizes are SymInt; decisions about them are plain bools with guards",
        "lobpcg, rrelu_": "still to be written (an eigensolver; an in-place form)",
    },
    "torch.Tensor": {
        "index": "of functorch's first-class dimensions",
        "to_mkldnn": "a layout of one library, which no backend here uses",
    },
}
"""Names of the two largest lists that are not there, and why."""


@dataclass
class Namespace:
    """The public names of one torch module."""

    name: str  # as in the data file, for example "torch.nn.functional"
    names: list[str]
    missing: list[str] = field(default_factory=list)
    untested: list[str] = field(default_factory=list)

    @property
    def present(self) -> int:
        return len(self.names) - len(self.missing)

    @property
    def tested(self) -> int:
        return self.present - len(self.untested)

    @property
    def is_internal(self) -> bool:
        return "(internal" in self.name

    def as_record(self) -> dict[str, Any]:
        return {"total": len(self.names), "present": self.present, "tested": self.tested}


def survey(module_name: str = "lucerne") -> list[Namespace]:
    """Every list of names, looked up in another framework."""
    lists: dict[str, list[str]] = json.loads((catalog.DATA / "torch_api.json").read_text())
    reached = _reached()
    found = []
    for title, names in lists.items():
        space = Namespace(title, names)
        with quiet():  # torch warns when some of its modules are looked at
            home = _home(module_name, title)
            space.missing = [name for name in names if not _has(home, name)]
        lost = set(space.missing)
        space.untested = [name for name in names if name not in lost and name not in reached]
        found.append(space)
    return found


def summary(spaces: list[Namespace], *, missing: bool = False) -> str:
    """A line for each namespace that has anything, and the sum."""
    lines = [f"{'M12 names':<44}{'present':>18}{'tested':>22}"]
    for space in spaces:
        if space.present or missing:
            lines.append(_row(space.name, space.present, space.tested, len(space.names)))
        if missing and space.missing:
            lines.append(f"    missing: {' '.join(space.missing)}")
    public = [space for space in spaces if not space.is_internal]
    total = sum(len(space.names) for space in public)
    present, tested = sum(s.present for s in public), sum(s.tested for s in public)
    lines.append(_row("all public", present, tested, total))
    return "\n".join(lines)


def training_summary(spaces: list[Namespace]) -> str:
    """The namespaces of the training layer, with every name that is missing or untested."""
    wanted = [space for space in spaces if space.name in TRAINING]
    lines = [f"{'training layer':<44}{'present':>18}{'tested':>22}"]
    for space in wanted:
        lines.append(_row(space.name, space.present, space.tested, len(space.names)))
        if space.missing:
            lines.append(f"    missing: {' '.join(space.missing)}")
        if space.untested:
            lines.append(f"    untested: {' '.join(space.untested)}")
    total = sum(len(space.names) for space in wanted)
    present, tested = sum(s.present for s in wanted), sum(s.tested for s in wanted)
    lines.append(_row("all of them", present, tested, total))
    return "\n".join(lines)


def _row(title: str, present: int, tested: int, total: int) -> str:
    first = f"{present}/{total} {100 * present / total:5.1f} %"
    second = f"{tested}/{total} {100 * tested / total:5.1f} %"
    return f"{title:<44}{first:>18}{second:>22}"


def _home(module_name: str, title: str) -> Any:
    """The module or class that should hold a list's names; None if it is not there."""
    path = title.split(" (")[0].removeprefix("torch").removeprefix(".")
    home: Any = importlib.import_module(module_name)
    for i, part in enumerate(path.split(".") if path else []):
        inner = getattr(home, part, None)
        if inner is None:
            inner = _submodule(".".join([module_name, *path.split(".")[: i + 1]]))
        if inner is None:
            return None
        home = inner
    return home


def _submodule(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ImportError:
        return None


def _has(home: Any, name: str) -> bool:
    try:
        return home is not None and hasattr(home, name)
    except Exception:  # a property of a class that needs an instance is there
        return True


@functools.cache
def _reached() -> frozenset[str]:
    classes = frozenset(modules.load()) | frozenset(optimizers.load())
    return frozenset(_op_database_names()) | frozenset(_mentioned()) | classes


def _op_database_names() -> Iterator[str]:
    """Last parts of every name that op_db runs, with methods, operators, in-place and aliases."""
    for entry in catalog.load().values():
        op = entry.op
        yield op.name.rsplit(".", 1)[-1]
        variants = (op.method_variant, op.inplace_variant, op.operator_variant)
        for variant in variants:
            name = getattr(variant, "__name__", "")
            yield name
            yield f"__{name}__"
        for alias in op.aliases:
            yield alias.name.rsplit(".", 1)[-1]


def _mentioned() -> Iterator[str]:
    """Attributes, imported names and words in strings of all tests, and in lists of cases."""
    cases = [path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("cases/*.txt"))]
    for case in "\n".join(cases).replace("; ", "\n").splitlines():
        yield from re.findall(r"\.([A-Za-z_]\w*)", case)
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                yield node.attr
            elif isinstance(node, ast.ImportFrom):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.Constant) and str(node.value).isidentifier():
                yield str(node.value)
