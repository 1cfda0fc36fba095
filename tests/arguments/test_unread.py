"""Every parameter of every public function is read by somebody, or stands in one table."""

from __future__ import annotations

import functools
import re
import types
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.arguments.kept import only_kept, package
from tests.arguments.table import FORMS, KEPT, UNMEANT
from tests.arguments.walk import Signature, public_modules, signatures, unread

pytest.importorskip("tensorboard", reason="the walk goes through modules of the extras too")

ROOT = Path(__file__).parents[2]
PORTING = ROOT / "docs" / "guide" / "porting.md"
PATTERNS = [pattern for _, patterns in (*UNMEANT, *FORMS) for pattern in patterns]


@functools.cache
def walked() -> list[Signature]:
    return signatures(public_modules())


@functools.cache
def found() -> list[str]:
    """`name:parameter` of all that nothing reads."""
    return [f"{s.name}:{p}" for s in walked() for p in unread(s)]


def test_the_walk_reaches_the_package() -> None:
    names = {s.name for s in walked()}
    assert len(names) > 2500
    assert sum(len(s.parameters) for s in walked()) > 6000
    for name in ("zeros", "Tensor.gather", "export.export", "fft.fft", "func.jacrev"):
        assert f"lucerne.{name}" in names


def test_no_argument_is_accepted_and_ignored() -> None:
    loose = [x for x in found() if not any(fnmatchcase(x, p) for p in PATTERNS)]
    assert not loose, (
        f"nothing reads {loose}: use it, refuse it (base.refusals.only), or, if it has no "
        "meaning here, enter it in tests/arguments/table.py and in docs/guide/porting.md"
    )


@pytest.mark.parametrize("pattern", PATTERNS)
def test_entries_of_the_table_are_needed(pattern: str) -> None:
    assert any(fnmatchcase(x, pattern) for x in found())


def test_what_has_no_meaning_is_documented() -> None:
    told = set(re.findall(r"`(\w+)`", PORTING.read_text(encoding="utf-8")))
    patterns = [p for _, patterns in UNMEANT for p in patterns]
    given = {x.partition(":")[2] for x in found() if any(fnmatchcase(x, p) for p in patterns)}
    silent = {name for name in given if not name.startswith("_") and name not in told}
    assert not silent, f"docs/guide/porting.md says nothing of {sorted(silent)}"


@functools.cache
def kept() -> list[str]:
    return only_kept(package(ROOT / "lucerne"))


def test_no_argument_is_kept_for_nobody() -> None:
    patterns = [p for _, patterns in KEPT for p in patterns]
    loose = [x for x in kept() if not any(fnmatchcase(x, p) for p in patterns)]
    assert not loose, f"nothing reads the attributes that keep {loose}: see the test above"
    assert all(any(fnmatchcase(x, p) for x in kept()) for p in patterns)


KEEPERS = [
    ("self.x = x", ["A:x"]),
    ("self.x, self.y = x, 1", ["A:x"]),
    ("self.x = x\n        print(self.x)", []),
    ("self.x = x\n        print(x)", []),
    ("self.x = x + 1", []),
]


@pytest.mark.parametrize(("body", "want"), KEEPERS)
def test_planted_keepers_are_found(body: str, want: list[str]) -> None:
    text = f"class A:\n    def __init__(self, x):\n        {body}\n"
    assert only_kept({"nn/a.py": text}) == want
    assert only_kept({"ir/a.py": text}) == []


# ---- the walk itself ----------------------------------------------------------------------------


def reads(a: Any, *rest: Any, b: int = 2, **options: Any) -> Any:
    return lambda: (a, rest, b, options)


def ignores(a: Any, b: int = 2, *, c: bool = False) -> Any:
    return a + c


def deletes(a: Any, b: int = 2) -> Any:
    del b
    return a + 1


def throws_away(a: Any, b: int, c: int) -> Any:
    _ = b, c
    return a


def hides(a: Any) -> Any:
    return lambda a: a


def swallows(a: Any, *args: Any, **kwargs: Any) -> Any:
    return a


def looks_at_all(a: Any, b: int) -> Any:
    return locals()


def refuses(a: Any) -> NoReturn:
    raise NotImplementedError


@functools.wraps(ignores)
def wraps(*args: Any, **kwargs: Any) -> Any:
    return ignores(*args, **kwargs)


class Owner:
    def __init__(self, a: Any, b: int) -> None:
        self.a = a

    def method(self, a: Any) -> int:
        return 1

    @staticmethod
    def static(a: Any) -> int:
        return 1

    @classmethod
    def of_class(cls, a: Any) -> Any:
        return cls

    def _own(self, a: Any) -> int:
        return 1


PLANTED: list[tuple[Any, list[str]]] = [
    (reads, []),
    (ignores, ["ignores:b"]),
    (deletes, ["deletes:b"]),
    (throws_away, ["throws_away:b", "throws_away:c"]),
    (hides, ["hides:a"]),
    (swallows, ["swallows:args", "swallows:kwargs"]),
    (looks_at_all, []),
    (refuses, []),
    (wraps, ["wraps:b"]),
    (Owner, ["Owner.__init__:b", "Owner.method:a", "Owner.static:a", "Owner.of_class:a"]),
]


@pytest.mark.parametrize(("thing", "want"), PLANTED, ids=[thing.__name__ for thing, _ in PLANTED])
def test_planted_arguments_are_found(
    thing: Any, want: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("lucerne.planted")
    monkeypatch.setattr(thing, "__module__", "lucerne.planted")
    name = next(k for k, v in globals().items() if v is thing)
    setattr(module, name, thing)
    seen = [f"{s.name}:{p}" for s in signatures([module]) for p in unread(s)]
    assert seen == [f"lucerne.planted.{x}" for x in want]
