"""Eager calls on the device, beside the same calls on the host."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
from lucerne import backends

pytest.importorskip("jax", reason="pip install 'lucerne[xla]': the device 'xla' runs on jax")

Case = Callable[[Any], Any]


def _x(device: str) -> Any:
    return (torch.arange(24.0).reshape(4, 6) / 7 - 1.5).to(device)


def _written_through_views(d: str) -> Any:
    x = _x(d)
    x.t()[0].add_(5)
    x[1:, ::2].mul_(2)
    x[:, 1] = x[:, 2]
    x.view(-1)[3::4] = 7
    x.view(torch.int32)[0, 0] = 3
    return x


def _shared(d: str) -> Any:
    x = _x(d)
    y = x.clone()
    x.add_(1)
    z = x.detach()
    z.sub_(3)
    return x, y, z


def _odd_bytes(d: str) -> Any:
    x = torch.arange(16, dtype=torch.uint8).to(d)
    x[4:8].view(torch.float32).fill_(1.5)
    return x, x[8:].view(torch.int16), x.view(torch.bfloat16)


def _gradients(d: str) -> Any:
    x, w = _x(d), (torch.arange(18.0).reshape(6, 3) / 9).to(d).requires_grad_()
    y = torch.nn.functional.gelu(x @ w).softmax(-1)
    (y[:, 0] ** 2).sum().backward()
    return w.grad


def _stepped(d: str) -> Any:
    p = torch.nn.Parameter(_x(d))
    optimizer = torch.optim.AdamW([p], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (p**2).sum().backward()
        optimizer.step()
    assert optimizer.state[p]["step"].device.type == d
    return p


def _saved(d: str) -> Any:
    file = io.BytesIO()
    torch.save({"x": _x(d), "t": _x(d).t()[1:]}, file)
    file.seek(0)
    found = torch.load(file)
    assert found["x"].device.type == d
    return found["x"], found["t"]


def _drawn(d: str) -> Any:
    torch.manual_seed(3)
    return torch.randn(5, device=d), torch.rand(3, 2, device=d), torch.randperm(6, device=d)


def _strided(d: str) -> Any:
    x = _x(d)
    return x.as_strided((3, 4), (5, 2), 1), x.unfold(1, 3, 2), x.as_strided((2, 3), (0, 1))


def _into(d: str) -> Any:
    x = _x(d)
    out = torch.zeros(6, 4).to(d).t()
    torch.mul(x, 2, out=out)
    return out, torch.cat([x, x[:1]]), torch.where(x > 0, x, -x)


CASES: dict[str, Case] = {
    "views": _written_through_views,
    "shared": _shared,
    "odd bytes": _odd_bytes,
    "gradients": _gradients,
    "optimizer": _stepped,
    "save": _saved,
    "draws": _drawn,
    "strides": _strided,
    "out": _into,
    "casts": lambda d: (_x(d).to(torch.bfloat16) * 3, _x(d).to(torch.int8), _x(d) > 0),
    "reductions": lambda d: (_x(d).sum(0), _x(d).argmax(1), _x(d).std(), _x(d).cumsum(1)),
    "positions": lambda d: (_x(d)[[2, 0]], _x(d).nonzero(), *_x(d).sort(1), *_x(d).topk(2)),
    "complex": lambda d: (_x(d).to(torch.complex64) * 1j).real,
    "convolution": lambda d: torch.nn.functional.conv1d(_x(d)[None], torch.ones(2, 4, 3).to(d)),
    "empty": lambda d: (_x(d)[:0].sum(), _x(d)[:0] + 1),
}


def _flat(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.parametrize("name", CASES)
def test_as_on_the_host(name: str) -> None:
    here, there = _flat(CASES[name]("cpu")), _flat(CASES[name]("xla"))
    for a, b in zip(here, there, strict=True):
        assert b.device.type == "xla"
        assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride())
        torch.testing.assert_close(b.cpu(), a, rtol=2e-6, atol=2e-6)
    assert {row["op"] for row in backends.bill().rows()} <= {"draw", "draw_each"}


ERRORS: dict[str, Case] = {
    "index": lambda x: x[torch.tensor([9]).to("xla")],
    "gather": lambda x: x.gather(0, torch.full((1, 6), 4).to("xla")),
    "embedding": lambda x: torch.nn.functional.embedding(torch.tensor([-1]).to("xla"), x),
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_bad_position_is_raised_at_the_next_wait(name: str) -> None:
    with pytest.raises(IndexError, match=r"index.*out of.*test_eager\.py"):
        print(ERRORS[name](_x("xla")).sum().item())
    assert _x("xla").sum().item() == pytest.approx(_x("cpu").sum().item())


def test_a_dtype_that_it_lacks() -> None:
    assert not backends.get("xla").takes(torch.complex32)
    with pytest.raises(NotImplementedError, match="xla has no dtype complex32"):
        torch.zeros(2, dtype=torch.complex32, device="xla") + 1


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_forked_child_is_told() -> None:
    x = _x("xla")
    pid = os.fork()
    if pid == 0:
        try:
            _ = x + 1
        except RuntimeError as error:
            os._exit(0 if "forked child" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
