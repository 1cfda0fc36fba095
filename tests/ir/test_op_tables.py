"""Facts of an op stand in its entry: a table of op names elsewhere needs a reason."""

from __future__ import annotations

import ast
from pathlib import Path

import lucerne  # noqa: F401  (fills the table)
from lucerne._src.ir import op as op_
from lucerne._src.ir.define import fronts
from lucerne._src.tensor.autograd import names as autograd_names
from lucerne.profiler import names as profiler_names

SOURCE = Path(__file__).parents[2] / "lucerne" / "_src"
LEAST = 4
SHARE = 0.8
"""A collection of at least so many strings, of which at least this share are names of ops."""

ALLOWED = {
    "rules, which are code: of a backend, or of forward mode": (
        "backends/", "tensor/forward/rules.py",
    ),
    "functions of the same names: of Python, NumPy, LLVM or inside of a tile kernel": (
        "ir/scalar/", "ir/symbolic/", "tensor/methods.py", "tiles/", "transforms/constants.py",
    ),
    "what others list: torch's functions for lists and sparse tensors, the ops of a model": (
        "tensor/foreach.py", "tensor/sparse/elementwise.py", "conformance/models.py",
    ),
}  # fmt: skip
"""Why a table of op names may stand outside of the entries, and where such tables are."""
PLACES = [place for places in ALLOWED.values() for place in places]


def tables(text: str) -> list[tuple[str, list[str]]]:
    """Collections of op names at the top of a module, and which of their strings are none."""
    known = op_.table()
    found = []
    for node in ast.parse(text).body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        strings = [
            c.value
            for c in ast.walk(node.value)
            if isinstance(c, ast.Constant) and isinstance(c.value, str)
        ]
        ops = [s for s in strings if s in known]
        if len(ops) >= LEAST and len(ops) >= SHARE * len(strings):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            found.append((ast.unparse(target), [s for s in strings if s not in known]))
    return found


def all_tables() -> list[tuple[str, str, list[str]]]:
    return [
        (path.relative_to(SOURCE).as_posix(), name, dead)
        for path in sorted(SOURCE.rglob("*.py"))
        if "ops" not in path.relative_to(SOURCE).parts[:1]
        for name, dead in tables(path.read_text(encoding="utf-8"))
    ]


def test_no_table_of_op_names_without_a_reason() -> None:
    loose = [
        f"{file}: {name}"
        for file, name, _ in all_tables()
        if not any(file.startswith(part) for part in PLACES)
    ]
    assert not loose, f"{loose}: put the fact into the entries of the ops (ir/op.py has the fields)"


def test_reasons_are_needed() -> None:
    files = [file for file, *_ in all_tables()]
    assert len(ALLOWED) <= 3
    assert [p for p in PLACES if not any(f.startswith(p) for f in files)] == []


def test_tables_name_ops_alone() -> None:
    """A name that is no op never matches a node: it rots unseen."""
    mixed = ("tensor/nested/", "tensor/sparse/", "tensor/foreach.py", "tensor/methods.py", "tiles/",
             "ir/scalar/", "ir/symbolic/", "backends/cpu/math/", "capture/symbolic/",
             "tensor/subclasses/", "backends/cpu/rules/table.py", "autograd/names.py",
             "backends/cpu/native/", "backends/reference/", "conformance/")  # fmt: skip
    dead = [(f, n, d) for f, n, d in all_tables() if d and not any(part in f for part in mixed)]
    assert dead == []


def test_names_of_torch_belong_to_entries() -> None:
    """Tables from our names to torch's: what names no entry never shows."""
    known = {*op_.table(), *fronts()}
    tables = (autograd_names._SPELLED, autograd_names._BY_ARGUMENTS, profiler_names._RENAMED)
    assert [name for table in tables for name in table if name not in known] == []


def test_a_planted_table_is_found() -> None:
    text = 'LINEAR = frozenset(("sum", "mean", "neg", "cast", "no_such_op"))\n'
    assert tables(text) == [("LINEAR", ["no_such_op"])]
    assert tables('NAMES = ("sum", "mean", "neg")\n') == []
