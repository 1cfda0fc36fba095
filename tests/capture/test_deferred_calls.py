"""`print` and logging inside of a compiled function: no breaks, and all that eager tells."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch

LOG = logging.getLogger("lucerne.tests.deferred")


def shows_numbers(x: Any) -> Any:
    y = x * 2
    print("two", 2, 2.5, None, True, sep="|", end=";\n")
    return y + 1


def shows_a_shape(x: Any) -> Any:
    y = x * 2
    print("shape", y.shape, x.dtype == torch.float32)
    return y + 1


def shows_a_tensor_that_changes_later(x: Any) -> Any:
    y = x * 2
    print(y)
    y.add_(1)
    print("then", y)
    return y


def shows_in_a_loop(x: Any) -> Any:
    for k in range(3):
        x = x + k
        print(k, x)
    return x


def tells_between_writes(x: Any, seen: list[Any] = []) -> Any:  # noqa: B006
    seen.clear()
    seen.append(x * 2)
    print("first")
    seen.append(x * 3)
    print("second", seen[1])
    return seen[0] + seen[1]


def into_a_buffer(x: Any) -> Any:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        print("inside")
    print("outside")
    return x * len(text.getvalue())


def logs(x: Any) -> Any:
    LOG.info("before %s %d", "x", 3)
    y = x.exp()
    LOG.warning("after")
    LOG.debug("not shown")
    return y


def logs_a_tensor(x: Any) -> Any:
    LOG.error("x is %s", x * 2)
    return x.exp()


WHOLE = (
    shows_numbers, shows_a_shape, shows_a_tensor_that_changes_later, shows_in_a_loop, logs,
    logs_a_tensor,
)  # fmt: skip


def told(fn: Callable[[Any], Any], capsys: Any, caplog: Any) -> tuple[Any, ...]:
    """What three calls print, log (with the line) and return."""
    caplog.clear()
    capsys.readouterr()
    with caplog.at_level(logging.INFO, LOG.name):
        results = [fn(torch.arange(3.0) + k).tolist() for k in range(3)]
    records = [(r.levelname, r.getMessage(), r.lineno, r.funcName) for r in caplog.records]
    return results, capsys.readouterr().out, records


@pytest.mark.parametrize("fn", [*WHOLE, tells_between_writes, into_a_buffer])
def test_the_same_is_told(fn: Any, capsys: Any, caplog: Any) -> None:
    compiled = torch.compile(fn)
    assert told(compiled, capsys, caplog) == told(fn, capsys, caplog)


@pytest.mark.parametrize("fn", WHOLE)
def test_it_is_one_graph(fn: Any, capsys: Any, caplog: Any) -> None:
    compiled = torch.compile(fn, fullgraph=True)
    assert told(compiled, capsys, caplog) == told(fn, capsys, caplog)
    assert len(compiled.entries) == 1


def test_what_changes_at_each_call_is_a_break_and_compiled_once(capsys: Any) -> None:
    def fn(x: Any, k: int) -> Any:
        y = x * 2
        print("step", k)
        return y + 1

    compiled = torch.compile(fn)
    for k in range(9):
        assert compiled(torch.ones(2), k).tolist() == [3.0, 3.0]
    assert capsys.readouterr().out == "".join(f"step {k}\n" for k in range(9))
    assert [b.kind for b in compiled.breaks] == ["print"]
    assert len(compiled.entries) <= 3


def test_a_tensor_with_a_history_is_shown_as_eager_shows_it(capsys: Any) -> None:
    def fn(x: Any) -> Any:
        print(x)
        return x * 2

    compiled, x = torch.compile(fn), torch.ones(2, requires_grad=True)
    compiled(x)
    shown = capsys.readouterr().out
    fn(x)
    assert shown == capsys.readouterr().out


def test_an_error_comes_after_what_was_told(capsys: Any) -> None:
    def fn(x: Any, i: Any) -> Any:
        print("before")
        return x[i] * 2

    compiled, x = torch.compile(fn), torch.ones(3)
    compiled(x, torch.tensor([1]))
    capsys.readouterr()
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([7]))
    assert capsys.readouterr().out == "before\n"
