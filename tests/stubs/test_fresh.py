"""The stubs are those of the table as it stands, and they say the truth."""

from __future__ import annotations

import ast
import subprocess
import sys
from inspect import Parameter
from pathlib import Path
from typing import Any

import pytest

import lucerne
from lucerne._src.ir.namespaces import public_names
from tools.stubs.__main__ import orphans, stale
from tools.stubs.facts import schema_name
from tools.stubs.layout import COMMAND, HEADER
from tools.stubs.members import forms
from tools.stubs.modules import namespaces, stubs
from tools.stubs.signatures import signatures

ROOT = Path(__file__).parents[2]


def test_stubs_are_fresh() -> None:
    """In a process of its own: other tests give Tensor members that are none of its own."""
    ran = subprocess.run(
        [sys.executable, "-m", "tools.stubs", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 0, f"run `{COMMAND}`:\n{ran.stdout}{ran.stderr}"


def test_a_stale_stub_is_named(tmp_path: Path) -> None:
    same, other, missing = (tmp_path / name for name in ("same.pyi", "other.pyi", "missing.pyi"))
    same.write_text("x: int\n")
    other.write_text("y: int\n")
    assert stale(dict.fromkeys((same, other, missing), "x: int\n")) == [other, missing]


def test_a_stub_of_a_module_that_moved_is_named(tmp_path: Path) -> None:
    made, moved, by_hand = (tmp_path / name for name in ("made.pyi", "moved.pyi", "hand.pyi"))
    for path in (made, moved):
        path.write_text(f"{HEADER}\n")
    by_hand.write_text("x: int\n")
    assert orphans({made: ""}, tmp_path) == [moved]


@pytest.fixture(scope="module")
def texts() -> dict[Path, str]:
    return stubs()


def test_stubs_are_python_and_say_who_made_them(texts: dict[Path, str]) -> None:
    for path, text in texts.items():
        ast.parse(text)
        assert f"`{COMMAND}`" in text.splitlines()[0], path


def _names(text: str) -> set[str]:
    """What a stub shows: what it defines, assigns, and imports under the same name."""
    found: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Assign):
            found.update(t.id for t in node.targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.ImportFrom):
            found.update(a.asname for a in node.names if a.asname == a.name)
    return found


MADE_FOR_ITSELF = {"Any", "STORAGE_TYPES", "TENSOR_TYPES", "TYPE_CHECKING", "annotations"}


def test_the_top_module_is_whole(texts: dict[Path, str]) -> None:
    told = _names(texts[Path(lucerne.__file__).with_suffix(".pyi")])
    here = {n for n in dir(lucerne) if not n.startswith("_")} - MADE_FOR_ITSELF
    modules = {n for n in here - told if type(getattr(lucerne, n)).__name__ == "module"}
    assert here - told - modules == set()
    assert {n for n in told if not hasattr(lucerne, n)} == set()


# ---- what is promised is what comes -------------------------------------------------------------

SAMPLES = (
    lucerne.tensor([[0.5, 0.25], [0.25, 0.75]]),
    lucerne.tensor([[1, 2], [3, 4]]),
    lucerne.tensor([0.25, 0.75]),
    lucerne.tensor(0.5),
)
NEEDED = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
KINDS: dict[str, Any] = {
    "Tensor": lucerne.Tensor, "_bool": bool, "_int": int, "_float": float, "str": str,
    "dtype": lucerne.dtype, "Size": lucerne.Size, "None": type(None),
}  # fmt: skip


def _is_as_told(result: Any, told: str) -> bool:
    if told in KINDS:
        return isinstance(result, KINDS[told])
    if told.startswith("tuple[Tensor"):
        count = told.count("Tensor")
        whole = "..." in told or len(result) == count
        return isinstance(result, tuple) and whole
    if told.startswith("return_types."):
        return type(result) is getattr(lucerne.return_types, told.partition(".")[2])
    return True


def _broken(name: str, call: Any, told: str) -> list[str]:
    """Results of another type than the stub says; a sample that is refused says nothing."""
    found = []
    for sample in SAMPLES:
        try:
            result = call(sample.clone())
        except Exception:
            continue
        if not _is_as_told(result, told):
            found.append(f"{name}: told {told}, got {type(result)}")
    return found


@pytest.mark.filterwarnings("ignore")
def test_methods_return_what_stubs_say() -> None:
    """Every method that can be called with nothing but the tensor."""
    wrong, called = [], 0
    for name, value in list(vars(lucerne.Tensor).items()):
        if name.startswith("__") or isinstance(value, staticmethod) or not callable(value):
            continue
        first = forms(name, value)[0]
        if all(p.default or p.kind not in NEEDED for p in first.parameters[1:]):
            called += 1
            wrong += _broken(name, lambda x, name=name: getattr(x, name)(), first.result)
    assert called > 300
    assert wrong == []


@pytest.mark.filterwarnings("ignore")
def test_functions_return_what_stubs_say() -> None:
    """Every function of the table that takes one tensor."""
    wrong, called = [], 0
    for space in namespaces():
        for name, function in public_names(space).items():
            first = signatures(function, schema_name(space, name))[0]
            needed = [p for p in first.parameters if not p.default and p.kind in NEEDED]
            if len(needed) == 1 and needed[0].type.startswith("Tensor"):
                called += 1
                wrong += _broken(f"{space}.{name}", function, first.result)
    assert called > 250
    assert wrong == []


def test_a_false_promise_is_found() -> None:
    assert _broken("sort", lucerne.sort, "Tensor")
    assert _broken("sort", lucerne.sort, "return_types.topk")
    assert not _broken("sort", lucerne.sort, "return_types.sort")
