"""Every mistake is explained: the module, the user's line, what met; few frames of ours."""

from __future__ import annotations

import linecache
import pickle
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
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


def _problems(mistake: Mistake, error: BaseException, file: str) -> list[str]:
    """What an error lacks."""
    text = "\n".join([str(error), *getattr(error, "__notes__", ())])
    trace = traceback.walk_tb(error.__traceback__)
    lines = {line for frame, line in trace if frame.f_code.co_filename == file}
    found = [f"does not say {part}" for part in mistake.said if part not in text]
    if mistake.module not in text:
        found.append(f"does not name {mistake.module}")
    if f"{file}:{LINE} in wrong" not in text and LINE not in lines:
        found.append("does not name the line")
    if _frames_of_ours(error) > MOST_FRAMES:
        found.append(f"{_frames_of_ours(error)} frames are ours")
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.name)
def test_mistake_is_explained(mistake: Mistake, way: str) -> None:
    file = f"/mistakes/{mistake.name}.py"
    wrong, given = _program(mistake, file)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any error
        WAYS[way](wrong)(*given)
    problems = _problems(mistake, caught.value, file)
    assert not problems, [problems, *traceback.format_exception(caught.value)]


def test_each_mistake_asks_for_what_met_and_for_the_module() -> None:
    """The judge is only as good as its rows."""
    assert len({m.name for m in MISTAKES}) == len(MISTAKES)
    for mistake in MISTAKES:
        assert mistake.said, mistake
        called = re.search(r"\b(net|loss|entropy|net\.head\.half\(\))\((?!x\)(\.|,))", mistake.line)
        assert bool(called) == bool(mistake.module), mistake


def test_what_an_error_lacks_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    row = next(m for m in MISTAKES if m.name == "features")
    wrong, given = _program(row, "/mistakes/planted.py")
    error = _caught(lambda: wrong(*given))
    assert _problems(row, error, "/mistakes/planted.py") == []
    assert _problems(row, error, "/mistakes/other.py") == ["does not name the line"]
    other = row._replace(said=("[7, 7]",), module="net.head")
    lacking = ["does not say [7, 7]", "does not name net.head"]
    assert _problems(other, error, "/mistakes/planted.py") == lacking
    monkeypatch.setattr(config, "full_tracebacks", True)
    shown = _problems(row, _caught(lambda: wrong(*given)), "/mistakes/planted.py")
    assert [x.partition(" ")[2] for x in shown] == ["frames are ours"]


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


def test_pytest_shows_the_users_frames_and_the_notes(tmp_path: Path) -> None:
    """What a report of pytest shows of an error: it reads the traceback itself."""
    lines = [
        "import lucerne as torch",
        "from lucerne.utils.data import DataLoader",
        "def test_matmul(): torch.ones(2, 3) @ torch.ones(2, 3)",
        "def test_loader(): list(DataLoader([torch.ones(3), torch.ones(4)], batch_size=2))",
    ]
    file = tmp_path / "test_wrong.py"
    file.write_text("\n".join(lines))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=short", str(file)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    # (the summary behind the report repeats whole messages where CI is set)
    report = found.stdout.partition("FAILURES")[2].partition("short test summary info")[0]
    frames = re.findall(r"^(\S+\.py):\d+: in ", report, re.MULTILINE)
    assert [Path(f).name for f in frames if "test_wrong" in f] == ["test_wrong.py"] * 2, report
    assert sum("test_wrong" not in f for f in frames) == 2, report  # (the one that raised, each)
    assert "try nn.utils.rnn.pad_sequence" in report
    assert report.count("float32[2, 3]") == 2
