"""Additions of several threads, forks beside busy threads: the small tier of both commands."""

import ast
import os
import pathlib
import sys
import threading
import time

import pytest

import lucerne
from lucerne._src.base.process import forks
from lucerne._src.base.process.source_location import naming_modules
from lucerne._src.tensor.autograd.node import accumulate
from lucerne._src.tensor.autograd.state import ADDING, state_of
from tests.threads import adding, forking

ROOT = pathlib.Path(lucerne.__file__).parent
MADE_ANEW = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Barrier"}
ELSEWHERE = {
    "_src/base/process/forks.py": "the registry itself",
    "_src/backends/cpu/limits.py": "lives as long as one measurement",
    "_src/capture/breaks/reasons.py": "asks for the types of locks",
    "_src/capture/cache/disk/key.py": "asks for the type of a lock",
}


@pytest.mark.parametrize("way", adding.WAYS)
def test_no_addition_is_lost(way: str) -> None:
    assert adding.lost(way, 100) == 0


@pytest.mark.parametrize("way", ["eager", "compiled", "compiled step", "compiled and eager"])
def test_no_first_addition_is_lost(way: str) -> None:
    """The first gradient of a leaf is kept, all others are added: threads that look at the same
    time both find none. They change turns as often as they can here."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        assert [adding.lost(way, 5) for _ in range(12)] == [0] * 12
    finally:
        sys.setswitchinterval(before)


def test_a_trace_does_not_wait_for_hooks_of_another_thread() -> None:
    """It holds the lock of additions, for which that thread may wait in its hook."""
    w = lucerne.ones(3, requires_grad=True)
    w.register_post_accumulate_grad_hook(lambda leaf: None)

    def trace() -> None:
        with naming_modules({}, trace.__code__), ADDING:
            accumulate(w, lucerne.ones(3))

    with state_of(w).post_hooks.lock:  # type: ignore[union-attr]
        traced = threading.Thread(target=trace, daemon=True)
        traced.start()
        traced.join(20)
        assert not traced.is_alive()
    assert w.grad.tolist() == [1, 1, 1]


def test_a_lost_addition_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adding.WAYS, "none", lambda w: lambda: w.sum().backward())
    assert adding.lost("none", 1) == adding.SIZE


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("mix", [("compiling",), ("drawing",), tuple(forking.BUSY)])
def test_children_of_fork_end(mix: tuple[str, ...]) -> None:
    assert forking.hangs(mix, 3) == (0, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_child_that_hangs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "PATIENCE", 0.5)
    monkeypatch.setattr(forking, "_child", lambda number: time.sleep(60))
    assert forking.hangs((), 1) == (1, 0)


def _locks_of_its_own(source: str) -> list[int]:
    """Lines that make a lock which a forked child would find held."""
    if "threading" not in source and "cached_property" not in source:
        return []
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            home = node.func.value
            if isinstance(home, ast.Name) and home.id == "threading":
                found += [node.lineno] * (node.func.attr in MADE_ANEW)
        for one in getattr(node, "decorator_list", ()):
            if ast.unparse(one).endswith("cached_property"):
                found.append(one.lineno)
    return found


def test_every_lock_is_made_by_forks() -> None:
    found = {}
    for path in ROOT.rglob("*.py"):
        lines = _locks_of_its_own(path.read_text())
        if lines and str(path.relative_to(ROOT)) not in ELSEWHERE:
            found[str(path.relative_to(ROOT))] = lines
    assert found == {}
    assert _locks_of_its_own("import threading\nheld = threading.RLock()") == [2]
    assert _locks_of_its_own("class A:\n    @functools.cached_property\n    def x(s): ...") == [2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_lock_is_free_in_the_child() -> None:
    held = forks.rlock()
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with held:
            entered.set()
            leave.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if held.acquire(blocking=False) else 1)
    leave.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _told_too_early(source: str) -> list[int]:
    """Lines of `forks.tell(self)` after which its function sets an attribute: a child of a fork in
    another thread would find the object half made."""
    if "forks.tell(self)" not in source:
        return []
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            inside = [x for x in ast.walk(node) if isinstance(x, ast.expr)]
            told = [
                x.lineno
                for x in inside
                if isinstance(x, ast.Call) and ast.unparse(x) == "forks.tell(self)"
            ]
            last = max([x.lineno for x in inside if _sets_own_attribute(x)], default=0)
            found += [line for line in told if line < last]
    return found


def _sets_own_attribute(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node.value) == "self"
    )


def test_what_forks_tell_is_whole() -> None:
    found = {str(p.relative_to(ROOT)): _told_too_early(p.read_text()) for p in ROOT.rglob("*.py")}
    assert {path: lines for path, lines in found.items() if lines} == {}
    assert _told_too_early("def f(self):\n    forks.tell(self)\n    self.x = 1") == [2]


class _Failing:
    def forget(self) -> None:
        raise ValueError("not whole")


class _Told:
    def __init__(self) -> None:
        self.told = 0

    def forget(self) -> None:
        self.told += 1


def test_all_are_told_though_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, failing = _Told(), _Told(), _Failing()
    monkeypatch.setattr(forks, "_told", [one, failing, other])
    with pytest.raises(ValueError, match="not whole"):
        forks._forget()
    assert (one.told, other.told) == (1, 1)
