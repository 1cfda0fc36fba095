"""The tool that shuffles tests finds what it looks for."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

import lucerne
from tests.shuffled import watched
from tests.shuffled.__main__ import main, read
from tests.shuffled.plugin import shuffled
from tests.shuffled.search import culprits
from tests.support import settings

LEAKS = """
import os
def test_leaves(): os.environ["LEFT_BY_A_TEST"] = "1"
def test_more(): assert True
"""
SUFFERS = """
import os
def test_needs(): assert "LEFT_BY_A_TEST" not in os.environ
"""


@dataclass
class Item:
    nodeid: str


# ---- the search


def test_it_fails_alone() -> None:
    assert culprits("t", ["a", "b"], lambda tests: True) == []


def test_it_was_chance() -> None:
    assert culprits("t", ["a", "b"], lambda tests: False) is None


@pytest.mark.parametrize("needed", [["c"], ["a"], ["j"], ["b", "g"], ["a", "e", "j"]], ids="+".join)
def test_the_tests_that_are_needed_are_found(needed: list[str]) -> None:
    tries = []

    def fails(tests: list[str]) -> bool:
        tries.append(tests)
        return all(n in tests for n in needed)

    assert culprits("t", list("abcdefghij"), fails) == needed
    assert all(tests == sorted(tests) for tests in tries), "the order is kept"
    assert len(tries) <= 2 + 6 * len(needed)


# ---- the order


def test_files_stay_together_and_nothing_is_lost() -> None:
    items = [Item(f"{f}.py::test_{n}") for f in "abcd" for n in range(5)]
    found = [i.nodeid for i in shuffled(list(items), 3)]
    assert sorted(found) == [i.nodeid for i in items]
    assert found != sorted(found)
    files = [name[0] for name in found]
    assert [f for k, f in enumerate(files) if k == 0 or files[k - 1] != f] == list(
        dict.fromkeys(files)
    )
    assert found == [i.nodeid for i in shuffled(list(items), 3)]
    assert found != [i.nodeid for i in shuffled(list(items), 4)]


def test_a_share_of_each_file() -> None:
    items = [Item(f"{f}.py::test_{n}") for f in "ab" for n in range(10)]
    found = [i.nodeid[0] for i in shuffled(items, 1, 0.3)]
    assert (found.count("a"), found.count("b")) == (3, 3)


# ---- what is watched


def test_a_change_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    before = watched.state()
    assert not watched.differences(before, watched.state())
    monkeypatch.setenv("SOMETHING_NEW", "1")
    assert watched.differences(before, watched.state()) == {"$SOMETHING_NEW": "nothing -> '1'"}


@pytest.mark.parametrize(
    ("old", "new", "seen"),
    [(1, 2, False), (2, 1, True), (True, False, True), (1, True, True), ("a", "b", True)],
)
def test_what_only_grows_is_no_change(old: object, new: object, seen: bool) -> None:
    found = watched.differences({"m._counter": old}, {"m._counter": new})
    assert bool(found) == seen
    assert watched.differences({"m.switch": 1}, {"m.switch": 2}) == {"m.switch": "1 -> 2"}


def test_settings_of_the_package_are_watched() -> None:
    assert lucerne.is_grad_enabled()
    assert watched.state()["lucerne._src.base.config.config.user_lines"] is True
    assert any("is_grad_enabled" in name for name in watched.state())


# ---- what the suite puts back by itself


def test_settings_are_put_back() -> None:
    """As tests/conftest.py does after every file of tests."""
    threads = lucerne.get_num_threads()
    with settings.kept():
        lucerne.set_num_threads(threads + 1)
        lucerne.set_default_dtype(lucerne.float64)
        lucerne.set_grad_enabled(False)
    assert lucerne.get_num_threads() == threads
    assert lucerne.get_default_dtype() is lucerne.float32
    assert lucerne.is_grad_enabled()


# ---- whole runs


def test_a_crash_is_blamed_on_the_test_that_ran() -> None:
    log = '{"event": "start", "test": "a"}\n{"event": "start", "test": "b"}\n'
    assert read(log, "exit code -11: ").failed == {"b": "exit code -11: "}
    assert read(log, "stopped after 3 s").failed == {}


def test_a_planted_pair_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_leaks.py").write_text(LEAKS)
    (tmp_path / "test_suffers.py").write_text(SUFFERS)
    seed = next(s for s in range(1, 100) if shuffled([Item("l"), Item("s")], s)[0].nodeid == "l")
    arguments = ["--folders", ".", "--root", str(tmp_path), "--seed", str(seed)]
    assert main(arguments) == 1
    told = capsys.readouterr().out
    assert "FAILS test_suffers.py::test_needs" in told
    assert "only after test_leaks.py::test_leaves" in told
    assert "LEAVES test_leaks.py::test_leaves\n    $LEFT_BY_A_TEST: nothing -> '1'" in told


def test_seeds_differ() -> None:
    """The example above relies on it: both orders of two files come up."""
    firsts = {shuffled([Item("l"), Item("s")], s)[0].nodeid for s in range(1, 20)}
    assert firsts == {"l", "s"}
    assert random.Random(1).random() == random.Random(1).random()
