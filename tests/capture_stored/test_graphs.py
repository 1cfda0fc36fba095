"""Programs found by their graphs: parts of broken functions, functions that have no key."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.capture.cache.disk import graph_programs, lookup
from tests.capture_stored.attacks import ATTACKS, clean
from tests.capture_stored.bench import Bench


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path / "programs", monkeypatch)


def broken(x: Any) -> Any:
    y = (x * 2).sin()
    time.time()
    return (y + 1).exp()


def asks(x: Any) -> Any:
    y = x.cumsum(0) * torch.tensor([1.5, 2.5, 3.5])
    return y + 1 if y.sum().item() > 0 else y - 1


def drops(x: Any) -> Any:
    y = torch.nn.functional.dropout(x * 3, 0.5)
    time.time()
    return y * 2


def writes(x: Any) -> Any:
    x.add_(1)
    time.time()
    x[0] = 7
    return x * 2


def unfiled() -> Any:
    scope: dict[str, Any] = {"torch": torch}
    exec("def f(x):\n    return torch.softmax(x * 3, -1)", scope)
    return scope["f"]


class Hooked(torch.nn.Module):
    """Hooks are nothing that a key describes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.part = torch.nn.Linear(3, 3)
        self.part.register_forward_hook(lambda m, a, out: out.tanh())

    def forward(self, x: Any) -> Any:
        return self.part(x).square()


ROWS: dict[str, Any] = {
    "print": lambda: broken,
    "item and a constant": lambda: asks,
    "draws": lambda: drops,
    "writes": lambda: writes,
    "in no file": unfiled,
    "hooks": Hooked,
}


def call(make: Any, **options: Any) -> list[Any]:
    """The results of a call and its gradients, compiled as a new process would."""
    torch.compiler.reset()
    torch.manual_seed(0)
    x = torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.25, -3.0]], requires_grad=True)
    found = torch.compile(make(), **options)(x * 1)
    found.sum().backward()
    return [found.detach(), x.grad]


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("mode", [None, "bitwise"])
def test_later_processes_find_what_the_first_has_stored(
    bench: Bench, name: str, mode: str | None
) -> None:
    done = lookup.account
    first = call(ROWS[name], mode=mode)
    assert done.graphs_kept, str(done)
    kept = done.graphs_kept
    second = call(ROWS[name], mode=mode)
    assert done.graphs_found >= kept, str(done)
    assert done.graphs_kept == kept
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_parts_that_are_alike_are_compiled_once(bench: Bench) -> None:
    class Blocks(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(4))

        def forward(self, x: Any) -> Any:
            for part in self.parts:
                x = part(x).relu()
                time.time()
            return x

    call(Blocks)
    assert lookup.account.graphs_found > lookup.account.graphs_kept


def stepped(number: float, constant: float, size: int) -> Any:
    def f(x: Any) -> Any:
        y = x[:, :size] * number + torch.tensor(constant)
        time.time()
        return y

    return f


@pytest.mark.parametrize("other", [(2.5, 1.0, 3), (2.0, 1.5, 3), (2.0, 1.0, 2)], ids=str)
def test_another_number_constant_or_size_is_another_graph(bench: Bench, other: Any) -> None:
    call(lambda: stepped(2.0, 1.0, 3))
    kept = lookup.account.graphs_kept
    found = call(lambda: stepped(*other))
    assert lookup.account.graphs_kept > kept
    x = torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.25, -3.0]])
    assert torch.equal(found[0], stepped(*other)(x))


def test_lines_are_those_of_the_function_that_asks(bench: Bench) -> None:
    def one(x: Any) -> Any:
        time.time()
        return x.sin() * 3

    def two(x: Any) -> Any:
        time.time()
        return x.sin() * 3

    lines = []
    for fn in (one, two):
        torch.compiler.reset()
        compiled = torch.compile(fn)
        compiled(torch.ones(3))
        steps = [s for e in compiled.entries for s in e.stages.program.steps]
        lines.append({o.line for s in steps for o in s.origins} - {None})
    assert lookup.account.graphs_found
    assert all(lines)
    assert not lines[0] & lines[1]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: a.__name__)
def test_damaged_files_are_not_run(bench: Bench, attack: Any) -> None:
    right = call(lambda: broken)
    foreign, *files = bench.files
    for k, path in enumerate(files):
        attack(path, foreign, random.Random(k))
    foreign.unlink()
    before = lookup.account.graphs_found
    found = call(lambda: broken)
    assert lookup.account.graphs_found == before
    assert all(torch.equal(a, b) for a, b in zip(right, found, strict=True))
    for path in files:
        clean(path)


@pytest.mark.parametrize("where", ["_look", "_found"])
def test_an_error_costs_the_store_not_the_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    right = call(lambda: broken)

    def fails(self: Any) -> Any:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(graph_programs.GraphLookup, where, fails)
    with pytest.warns(UserWarning, match="planted"):
        found = call(lambda: broken)
    assert all(torch.equal(a, b) for a, b in zip(right, found, strict=True))


@pytest.mark.parametrize(
    "numbers", [(2.0, 2), (0.0, -0.0), (1, True), (1.0, float("nan"))], ids=str
)
def test_numbers_that_differ_have_keys_that_differ(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, numbers: tuple[Any, Any]
) -> None:
    keys: list[Any] = []
    look = graph_programs.GraphLookup._look

    def watched(self: Any) -> Any:
        keys.append(look(self))
        return keys[-1]

    monkeypatch.setattr(graph_programs.GraphLookup, "_look", watched)
    found = []
    for number in numbers:
        keys.clear()
        call(lambda n=number: lambda x: time.sleep(0) or x * ((x > 9) * n))
        found.append(list(keys))
    assert found[0]
    assert not set(found[0]) & set(found[1])
