"""Programs that look by themselves at what they give: `begin_checks`, and the watch by it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.base.config import config
from lucerne._src.capture.finite.check import FiniteCheck
from lucerne._src.tensor.autograd.nonfinite import NonFiniteError

_FORMS = {
    "one number": lambda x: (x / x).sum(),
    "several": lambda x: (x + 1, x.sum(), (x / x).reshape(2, 2)),
    "none of them floats": lambda x: (x > 0, (x + 1).long()),
}


@pytest.fixture(autouse=True)
def _compiled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "payoff_calls", 0)


def _entry(fn: Any, *given: Any) -> tuple[Any, Any]:
    compiled = torch.compile(fn, fullgraph=True)
    compiled(*given)
    (entry,) = compiled.entries
    return compiled, entry


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How often Python looks at results."""
    found: list[int] = []
    before = FiniteCheck.are_finite

    def are_finite(self: FiniteCheck, given: tuple[Any, ...]) -> bool:
        found.extend([1] if given else [])
        return before(self, given)

    monkeypatch.setattr(FiniteCheck, "are_finite", are_finite)
    return found


@pytest.mark.parametrize("form", _FORMS)
@pytest.mark.parametrize("size", [4, 40_000])
def test_alarms_tell_of_every_number_that_is_not_finite(form: str, size: int) -> None:
    fn = _FORMS[form] if size == 4 else lambda x: (x / x, x.sum())
    good, bad = torch.ones(size), torch.ones(size)
    bad[size - 1] = 0.0
    _, entry = _entry(fn, good)
    runner, check = entry.runner, FiniteCheck(entry.result_metas)
    assert check.is_run_by(runner) is bool(check.read)
    if not check.read:
        return
    for given, more in ((good, 0), (bad, 1), (good, 0), (-good, 0), (bad, 1)):
        before = runner.alarms
        assert runner.launch((), (given,)) is not None
        assert runner.alarms - before == more
    runner.end_checks()
    before = runner.alarms
    runner.launch((), (bad,))
    assert runner.alarms == before, "nobody wants to know any more"


def test_other_results_are_not_looked_at_meanwhile() -> None:
    _, entry = _entry(lambda x: (x + 1, x * 2), torch.ones(4))
    metas = entry.result_metas
    one, other = FiniteCheck(metas, [0]), FiniteCheck(metas, [1])
    assert one.is_run_by(entry.runner)
    assert one.is_run_by(entry.runner)
    assert not other.is_run_by(entry.runner)
    entry.runner.end_checks()
    assert not other.is_run_by(entry.runner)
    entry.runner.end_checks()
    assert other.is_run_by(entry.runner)
    entry.runner.end_checks()


def test_python_looks_at_nothing_that_is_finite(looks: list[int]) -> None:
    model = torch.nn.Linear(4, 4)
    compiled = torch.compile(lambda x: model(x).square().sum())
    compiled(torch.ones(2, 4)).backward()
    with torch.detect_nonfinite():
        for _ in range(5):
            compiled(torch.ones(2, 4)).backward()
        assert not looks
        with pytest.raises(NonFiniteError, match=r"square\(\) gave inf"):
            compiled(torch.full((2, 4), 1e30))
        assert looks
    looks.clear()
    compiled(torch.full((2, 4), float("nan")))
    assert not looks


def test_each_thread_that_watches_is_told() -> None:
    compiled, _ = _entry(lambda x: x.log().sum(), torch.ones(4))
    raised: list[str] = []
    ready = threading.Event()

    def watch() -> None:
        with torch.detect_nonfinite():
            ready.set()
            for _ in range(20):
                try:
                    compiled(torch.zeros(4))
                except NonFiniteError as error:
                    raised.append(str(error))

    with torch.detect_nonfinite():
        compiled(torch.ones(4))
        thread = threading.Thread(target=watch)
        thread.start()
        ready.wait()
        for _ in range(200):
            compiled(torch.ones(4))
        thread.join()
    assert len(raised) == 20
    assert all("log() gave inf" in text for text in raised)
