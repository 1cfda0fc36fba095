"""`torch.jit` as people use it: snippets that trace, script, save, load, freeze."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
from lucerne import nn
from lucerne.nn import functional as F
from tests.export.rows import Block, resnet


def saved(module: Any, **options: Any) -> Any:
    """Through a file and back."""
    file = io.BytesIO()
    torch.jit.save(module, file, **options)
    return torch.jit.load(io.BytesIO(file.getvalue()))


def trace_resnet() -> None:
    net = resnet().eval()
    traced = torch.jit.trace(net, torch.rand(1 + 1, 3, 21, 21))
    x = torch.rand(5, 3, 21, 21)
    with torch.no_grad():
        assert (traced(x) == net(x)).all()
        assert (saved(traced)(x) == net(x)).all()


def trace_function() -> None:
    def foo(x: Any, y: Any) -> Any:
        return 2 * x + y

    traced = torch.jit.trace(foo, (torch.rand(3), torch.rand(3)))
    assert isinstance(traced, torch.jit.ScriptFunction)
    assert traced(torch.ones(3), torch.ones(3)).tolist() == [3.0] * 3
    assert "add" in traced.code
    assert traced.graph is not None


def trace_method_and_kwargs() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(3, 3)

        def forward(self, x: Any, scale: Any) -> Any:
            return self.lin(x) * scale

        def half(self, x: Any) -> Any:
            return self.lin(x) / 2

    net = Net()
    kwargs = {"x": torch.rand(2, 3), "scale": torch.tensor(2.0)}
    traced = torch.jit.trace(net, example_kwarg_inputs=kwargs)
    assert torch.equal(traced(**kwargs), net(**kwargs))
    both = torch.jit.trace_module(
        net, {"forward": tuple(kwargs.values()), "half": torch.rand(2, 3)}
    )
    x = torch.rand(2, 3)
    assert torch.equal(both.half(x), net.half(x))


def script_function_with_a_decision() -> None:
    @torch.jit.script
    def foo(x: torch.Tensor, n: int) -> torch.Tensor:
        if x.sum() > 0:
            return x * n
        return -x

    assert foo(torch.ones(2), 3).tolist() == [3.0, 3.0]
    assert foo(-torch.ones(2), 3).tolist() == [1.0, 1.0]


def script_module_and_save() -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    scripted = torch.jit.script(net)
    x = torch.rand(2, 4)
    assert torch.equal(scripted(x), net(x))
    assert isinstance(scripted, torch.jit.ScriptModule)
    assert isinstance(scripted, nn.Sequential)
    assert list(scripted.state_dict()) == list(net.state_dict())
    assert torch.equal(saved(scripted)(x), net(x))
    assert "linear" in scripted.code
    assert scripted.original_name == "Sequential"


def script_with_marks() -> None:
    class Net(nn.Module):
        n: torch.jit.Final[int]

        def __init__(self) -> None:
            super().__init__()
            self.n, self.lin = 3, nn.Linear(2, 2)

        @torch.jit.ignore
        def note(self, x: Any) -> None:
            assert not torch.jit.is_scripting()

        @torch.jit.unused
        def nothing(self) -> None:
            raise AssertionError

        @torch.jit.export
        def other(self, x: Any) -> Any:
            return x + self.n

        def forward(self, x: Any) -> Any:
            self.note(x)
            y = torch.jit.annotate(list[torch.Tensor], [])
            for _ in range(self.n):
                y.append(self.lin(x))
            return torch.stack(y)

    net = torch.jit.script(Net())
    assert net(torch.ones(2)).shape == (3, 2)
    assert net.other(torch.zeros(1)).item() == 3
    assert saved(net)(torch.ones(2)).shape == (3, 2)


def old_style_script_module() -> None:
    class Net(torch.jit.ScriptModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, 2))

        @torch.jit.script_method
        def forward(self, x: Any) -> Any:
            return self.weight.mv(x)

    net = Net()
    assert net(torch.ones(2)).tolist() == [2.0, 2.0]
    assert saved(net)(torch.ones(2)).tolist() == [2.0, 2.0]


def freeze_traced() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    x = torch.rand(2, 3, 8, 8)
    frozen = torch.jit.freeze(torch.jit.trace(net, x).eval())
    assert not list(frozen.parameters())
    with torch.no_grad():
        assert torch.allclose(frozen(x), net(x), atol=1e-5)
        assert torch.allclose(saved(frozen)(x), net(x), atol=1e-5)


def freeze_scripted_then_optimize() -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.Tanh()).eval()
    frozen = torch.jit.freeze(torch.jit.script(net))
    fast = torch.jit.optimize_for_inference(torch.jit.script(nn.Linear(4, 3).eval()))
    x = torch.rand(2, 4)
    with torch.no_grad():
        assert torch.allclose(frozen(x), net(x), atol=1e-6)
        assert fast(x).shape == (2, 3)


def extra_files_and_map_location() -> None:
    traced = torch.jit.trace(nn.Linear(2, 2), torch.rand(3, 2))
    file = io.BytesIO()
    torch.jit.save(traced, file, _extra_files={"config.json": b"{}"})
    extra = {"config.json": ""}
    loaded = torch.jit.load(io.BytesIO(file.getvalue()), map_location="cpu", _extra_files=extra)
    assert extra == {"config.json": "{}"}
    assert loaded.weight.device.type == "cpu"


def train_a_traced_module() -> None:
    traced = torch.jit.trace(
        nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), torch.rand(8, 4)
    )
    optimizer = torch.optim.Adam(traced.parameters(), lr=0.05)
    x, y = torch.rand(8, 4), torch.rand(8, 1)
    first = None
    for _ in range(15):
        optimizer.zero_grad()
        loss = F.mse_loss(traced(x), y)
        loss.backward()
        optimizer.step()
        first = loss.item() if first is None else first
    assert loss.item() < first


def state_dict_between_modules() -> None:
    block = Block(4).eval()
    traced = torch.jit.trace(block, torch.rand(2, 4, 6, 6))
    other = Block(4).eval()
    other.load_state_dict(traced.state_dict())
    x = torch.rand(2, 4, 6, 6)
    assert torch.equal(traced(x), other(x))
    traced.load_state_dict(Block(4).state_dict())
    assert not torch.equal(traced(x), other(x))


def fork_and_wait() -> None:
    futures = [torch.jit.fork(lambda k=k: k * k) for k in range(3)]
    assert [torch.jit.wait(f) for f in futures] == [0, 1, 4]


def dict_in_dict_out() -> None:
    class Net(nn.Module):
        def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
            assert torch.jit.is_tracing()
            return {"sum": batch["a"] + batch["b"], "pair": (batch["a"], batch["b"] * 2)}

    given = {"a": torch.ones(2), "b": torch.ones(2)}
    traced = torch.jit.trace(Net(), (given,), check_trace=False)
    assert saved(traced)(given)["pair"][1].tolist() == [2.0, 2.0]
    assert not torch.jit.is_tracing()


SNIPPETS: list[Callable[[], None]] = [
    trace_resnet, trace_function, trace_method_and_kwargs, script_function_with_a_decision,
    script_module_and_save, script_with_marks, old_style_script_module, freeze_traced,
    freeze_scripted_then_optimize, extra_files_and_map_location, train_a_traced_module,
    state_dict_between_modules, fork_and_wait, dict_in_dict_out,
]  # fmt: skip


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda f: f.__name__)
def test_snippet(snippet: Callable[[], None]) -> None:
    torch.manual_seed(0)
    snippet()


def _looks(x: Any) -> Any:
    return x if x.sum() > 0 else -x


def test_trace_refuses_to_keep_a_decision() -> None:
    with pytest.raises(RuntimeError, match=r"test_jit.py:\d+ in _looks") as told:
        torch.jit.trace(_looks, torch.ones(3))
    assert "torch.cond" in str(told.value)


def test_saving_a_decision_says_where_and_what() -> None:
    scripted = torch.jit.script(_looks)
    scripted(torch.ones(2))
    with pytest.raises(RuntimeError, match=r"(?s)in _looks.*torch.cond"):
        scripted.save(io.BytesIO())


def test_script_needs_an_example() -> None:
    with pytest.raises(RuntimeError, match="call it once, or give"):
        torch.jit.script(_looks).save(io.BytesIO())
    given = torch.jit.script(lambda x: x * 2, example_inputs=[(torch.ones(2),)])
    assert saved(given)(torch.ones(2)).tolist() == [2.0, 2.0]


def test_check_trace_finds_what_changes() -> None:
    def drifts(x: Any) -> Any:
        return x + random.random()

    with pytest.raises(RuntimeError, match="Tracing failed sanity checks"):
        torch.jit.trace(drifts, torch.ones(2))
    torch.jit.trace(drifts, torch.ones(2), check_trace=False)


def test_check_inputs() -> None:
    weights = [torch.ones(2)]

    def uses(x: Any) -> Any:
        return x * weights[0]

    torch.jit.trace(uses, torch.ones(2), check_inputs=[(torch.rand(2),)])


def test_freeze_wants_eval() -> None:
    with pytest.raises(RuntimeError, match="eval mode"):
        torch.jit.freeze(torch.jit.trace(nn.Linear(2, 2), torch.rand(2, 2)))
    with pytest.raises(RuntimeError, match="ScriptModule"):
        torch.jit.freeze(nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match="traced or scripted"):
        torch.jit.save(nn.Linear(2, 2), io.BytesIO())
