"""What tests and the long command share: attacks and edits, each with its verdict."""

from __future__ import annotations

import itertools
import random
import sys
import types
from pathlib import Path
from typing import Any

import lucerne as torch
from tests.capture_stored.attacks import ATTACKS, clean
from tests.capture_stored.bench import Bench, given, other, subject
from tests.capture_stored.edits import Edit

_NUMBERS = itertools.count()


def attacked(bench: Bench, count: int, seed: int = 0) -> dict[str, int]:
    """So many attacks; raises AssertionError if one is run or gives another result.

    Returns how many there were of each kind.
    """
    chance = random.Random(seed)
    x = given()
    right = subject(x)
    bench.ask(other, x)
    [foreign] = bench.files
    kept_aside = foreign.read_bytes()
    bench.ask(subject, x)
    [path] = [p for p in bench.files if p != foreign]
    good = path.read_bytes()
    done: dict[str, int] = {}
    for k in range(count):
        attack = ATTACKS[k % len(ATTACKS)]
        attack(path, foreign, chance)
        found, how = bench.ask(subject, x)
        check(attack.__name__, found, right, how)
        done[attack.__name__] = done.get(attack.__name__, 0) + 1
        clean(path)
        path.write_bytes(good)
        path.chmod(0o600)
        if k % 50 == 0:
            found, how = bench.ask(subject, x)
            assert how == "hit", f"the whole file is not found after {attack.__name__}"
            assert torch.equal(found, right)
    assert foreign.read_bytes() == kept_aside
    return done


def check(name: str, found: Any, right: Any, how: str) -> None:
    """The result is right, and it was not the stored program that gave it."""
    assert how != "hit", f"{name}: it was run"
    assert torch.equal(found, right), f"{name}: a wrong result"


def loaded(path: Path, text: str) -> Any:
    """A module of this text, as a process that imports the file now would have it."""
    path.write_text(text)
    module = types.ModuleType("edited_module")
    sys.modules["edited_module"] = module  # dataclasses look there
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def edited(bench: Bench, edit: Edit, folder: Path) -> tuple[str, str, str]:
    """How the function was found before the edit, after it, and after it was taken back.

    Raises AssertionError where a result is not that of the function as it stands.
    """
    path = folder / f"edited{next(_NUMBERS)}.py"
    ways = []
    for text in (edit.before, edit.after, edit.before):
        fn, args = loaded(path, text).make()
        found, how = bench.ask(fn, *args)
        fn, args = loaded(path, text).make()
        right = fn(*args)
        assert torch.allclose(found, right, rtol=1e-5, atol=1e-6), f"a wrong result ({how})"
        ways.append(how)
    return ways[0], ways[1], ways[2]
