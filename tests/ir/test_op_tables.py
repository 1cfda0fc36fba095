"""Facts of an op stand in its entry: a table of op names elsewhere needs a reason."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import lucerne  # noqa: F401  (fills the table)
from lucerne._src.ir import op as op_

SOURCE = Path(__file__).parents[2] / "lucerne" / "_src"
LEAST = 4
SHARE = 0.8
"""A collection of at least so many strings, of which at least this share are names of ops."""

ALLOWED = {
    "backends/xla/views.py": "rules, which are code of the backend: one for each view",
    "conformance/models.py": "primitives that training steps of models run: a test trains them",
    "tiles/types.py": "functions of the language of tile kernels, whatever ops are called",
}
"""Where tables of op names stand outside of the entries, and why: at most three."""


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


@cache
def all_tables() -> list[tuple[str, str, list[str]]]:
    return [
        (path.relative_to(SOURCE).as_posix(), name, dead)
        for path in sorted(SOURCE.rglob("*.py"))
        if "ops" not in path.relative_to(SOURCE).parts[:1]
        for name, dead in tables(path.read_text(encoding="utf-8"))
    ]


def test_no_table_of_op_names_without_a_reason() -> None:
    loose = [f"{file}: {name}" for file, name, _ in all_tables() if file not in ALLOWED]
    assert not loose, f"{loose}: put the fact into the entries of the ops (ir/op.py has the fields)"


def test_reasons_are_needed() -> None:
    assert len(ALLOWED) <= 3
    assert sorted({file for file, *_ in all_tables()}) == sorted(ALLOWED)


def test_tables_name_ops_alone() -> None:
    """A name that is no op never matches a node: it rots unseen."""
    assert [(file, name, dead) for file, name, dead in all_tables() if dead] == []


def test_a_planted_table_is_found() -> None:
    text = 'LINEAR = frozenset(("sum", "mean", "neg", "cast", "no_such_op"))\n'
    assert tables(text) == [("LINEAR", ["no_such_op"])]
    assert tables('NAMES = ("sum", "mean", "neg")\n') == []
