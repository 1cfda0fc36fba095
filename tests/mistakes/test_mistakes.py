"""Every mistake is explained: the module, the user's line, what met; few frames of ours."""

from __future__ import annotations

import linecache
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
from lucerne import nn
from lucerne._src.base.config import config
from lucerne._src.base.process.source_location import is_users
from lucerne._src.tensor.eager import run
from tests.mistakes.table import MISTAKES, Mistake

MOST_FRAMES = 3
LINE = 3
WAYS: dict[str, Callable[[Any], Any]] = {"eager": lambda f: f, "compiled": torch.compile}


def _program(mistake: Mistake, file: str) -> tuple[Any, list[Any]]:
    """The function that makes a mistake in its third line, and its arguments."""
    scope: dict[str, Any] = {"torch": torch, "nn": nn, "__name__": "mistake"}
    exec(mistake.setup, scope)
    text = f"def wrong({', '.join(mistake.arguments)}):\n    # the next line is wrong\n"
    text += f"    {mistake.line}\n    return z\n"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), scope)
    return scope["wrong"], [eval(made, scope) for made in mistake.arguments.values()]


def _frames_of_ours(error: BaseException) -> int:
    found = traceback.walk_tb(error.__traceback__)
    return sum(not is_users(frame.f_code) for frame, _ in found)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.name)
def test_mistake_is_explained(mistake: Mistake, way: str) -> None:
    file = f"/mistakes/{mistake.name}.py"
    wrong, given = _program(mistake, file)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any error
        WAYS[way](wrong)(*given)
    error = caught.value
    text = "\n".join([str(error), *getattr(error, "__notes__", ())])
    lacking = [part for part in mistake.said if part not in text]
    trace = traceback.walk_tb(error.__traceback__)
    lines = {line for frame, line in trace if frame.f_code.co_filename == file}
    assert not lacking, text
    assert mistake.module in text
    assert f"{file}:{LINE} in wrong" in text or LINE in lines, text
    assert _frames_of_ours(error) <= MOST_FRAMES, traceback.format_exception(error)


# ---- what the table does not show ----------------------------------------------------------------


def _caught(call: Callable[[], Any]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any error
        call()
    return caught.value


def test_frames_are_shown_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    few = _frames_of_ours(_caught(lambda: torch.ones(2, 3) @ torch.ones(2, 3)))
    monkeypatch.setattr(config, "full_tracebacks", True)
    assert _frames_of_ours(_caught(lambda: torch.ones(2, 3) @ torch.ones(2, 3))) > few


def test_fault_of_ours_keeps_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "plan_of", int)  # (fails in a line of ours)
    error = _caught(lambda: torch.ones(3, 2) - torch.ones(3, 2, 1, 5))
    assert _frames_of_ours(error) > 1


def test_user_error_in_forward_has_a_note_and_its_text() -> None:
    class Refuses(nn.Module):
        def forward(self, x: Any) -> Any:
            raise ValueError("not today")

    net = nn.Sequential(nn.ReLU(), Refuses())
    error = _caught(lambda: net(torch.ones(2)))
    assert str(error) == "not today"
    [note] = error.__notes__
    assert note.startswith("in net.1: Refuses\nat ")
    assert _frames_of_ours(error) == 0


def test_error_of_a_known_call_is_told_like_the_first() -> None:
    table = torch.ones(3, 2)
    for _ in range(3):
        nn.functional.embedding(torch.tensor([1]), table)
    error = _caught(lambda: nn.functional.embedding(torch.tensor([4]), table))
    assert "float32[3, 2]" in error.__notes__[0]


def test_error_that_cannot_be_repeated_names_the_captured_line() -> None:
    class Counts(nn.Module):
        def forward(self, count: Any, table: Any, at: Any) -> Any:
            count += 1
            return table[at]

    net = nn.Sequential()
    net.counts = Counts()
    step = torch.compile(lambda c, t, i: net.counts(c, t, i) * 2)
    count, table = torch.zeros(1), torch.ones(3, 2)
    step(count, table, torch.tensor([1]))
    error = _caught(lambda: step(count, table, torch.tensor([5])))
    [note] = error.__notes__
    assert "counts" in note.splitlines()[0]
    assert f"{__file__}:" in note
    assert "float32[3, 2]" in note


class Mine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.layer(x)


@pytest.mark.parametrize("make", [lambda: nn.Linear(4, 2), Mine], ids=["layer", "module"])
def test_handled_errors_are_captured_as_before(make: Callable[[], Any]) -> None:
    net = nn.Sequential(make())

    def tries(x: Any) -> Any:
        try:
            return net(x)
        except RuntimeError:
            return x * 2

    given = torch.ones(2, 3)
    assert torch.equal(torch.compile(tries, fullgraph=True)(given), tries(given))


def test_note_is_pickled_as_text() -> None:
    error = _caught(lambda: torch.ones(2, 3) + torch.ones(4))
    again = pickle.loads(pickle.dumps(error))
    assert again.__notes__ == error.__notes__
    assert type(again.__notes__[0]) is str
