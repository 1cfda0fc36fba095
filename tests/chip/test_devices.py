"""Tensors on a device with memory of its own: moving, mixing, saving, choosing."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne import backends, nn
from lucerne._src.tensor.interop import outside
from lucerne.backends.formulas import Groups
from lucerne.utils.data import DataLoader, TensorDataset


def there(*values: Any) -> Any:
    return torch.tensor(values).to("slate")


def test_what_the_host_sees_is_a_copy_that_cannot_be_written() -> None:
    x = there(1.0, 2.0)
    with pytest.raises(ValueError, match="read-only"):
        x._storage.host()[:] = 0
    outside.assign(x[1:], np.float32(5))
    assert x.tolist() == [1.0, 5.0]


MIXED: dict[str, tuple[Callable[[], Any], str]] = {
    "add": (lambda: there(1.0) + torch.ones(1), "slate and cpu"),
    "mm": (lambda: there(1.0).view(1, 1) @ torch.ones(1, 1), "slate and cpu"),
    "cat": (lambda: torch.cat([there(1.0), torch.ones(1)]), "slate and cpu"),
    "out": (lambda: torch.add(there(1.0), 1, out=torch.ones(1)), "slate and cpu"),
    "gather": (lambda: there(1.0).gather(0, torch.tensor([0])), "slate and cpu"),
}


@pytest.mark.parametrize("name", MIXED)
def test_two_devices_are_refused_in_torchs_words(name: str) -> None:
    call, told = MIXED[name]
    words = "Expected all tensors to be on the same device, but found at least two devices, "
    with pytest.raises(RuntimeError, match=words + told):
        call()


def test_what_may_join_from_the_host() -> None:
    x = there(1.0, 2.0, 3.0)
    assert (x + torch.tensor(1.0)).tolist() == [2.0, 3.0, 4.0]
    assert x[torch.tensor([2, 0])].tolist() == [3.0, 1.0]
    x[torch.tensor([0])] = 9.0
    x[1:] = torch.tensor([7.0, 8.0])
    assert x.tolist() == [9.0, 7.0, 8.0]
    y = torch.zeros(3)
    y[:2] = x[:2]
    assert y.copy_(x).tolist() == x.tolist()


def test_numbers_of_devices() -> None:
    assert there(1.0).to("slate:0").device == torch.device("slate")
    assert torch.ones(1, device="slate:0").device == torch.device("slate")
    assert there(1.0).get_device() == 0
    assert torch.ones(1).get_device() == -1
    with pytest.raises(RuntimeError, match="invalid device ordinal: slate:1"):
        torch.ones(1, device="slate:1")


def test_numpy_is_refused_in_torchs_words() -> None:
    with pytest.raises(TypeError, match="can't convert slate device type tensor to numpy"):
        there(1.0).numpy()


def test_state_travels() -> None:
    model = nn.Linear(2, 3).to("slate")
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    for where in ("slate", "cpu"):
        file.seek(0)
        found = torch.load(file, map_location=where)
        assert found["weight"].device.type == where
        assert torch.equal(found["weight"].cpu(), model.weight.cpu())
    host = nn.Linear(2, 3)
    host.load_state_dict(model.state_dict())
    assert host.weight.device.type == "cpu"
    assert torch.equal(host.weight, model.weight.cpu())
    assert copy.deepcopy(model).weight.device.type == "slate"
    assert pickle.loads(pickle.dumps(there(1, 2))).tolist() == [1, 2]


def test_storage_can_be_resized_and_written() -> None:
    x = there(1.0, 2.0)
    assert x.resize_(3)[:2].tolist() == [1.0, 2.0]
    bytes_ = torch.tensor([1, 2], dtype=torch.uint8).to("slate").untyped_storage()
    bytes_[0] = 9
    assert bytes_.tolist()[:2] == [9, 2]
    assert bytes_.clone().tolist()[:2] == [9, 2]


def test_batches_of_a_loader_go_there() -> None:
    loader = DataLoader(TensorDataset(torch.arange(4.0)), batch_size=2)
    total = sum((x.to("slate").sum() for (x,) in loader), there(0.0)[0])
    assert total.item() == 6.0


def test_the_accelerator() -> None:
    chosen = torch.accelerator.current_accelerator()
    assert torch.accelerator.is_available()
    assert chosen is not None
    assert chosen.type in backends.outside()
    assert torch.accelerator.device_count() == 1
    torch.accelerator.synchronize()
    torch.accelerator.set_device_index(0)
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.accelerator.set_device_index(3)
    with pytest.raises(NotImplementedError, match="in order"):
        torch.accelerator.current_stream()


def test_a_function_is_compiled_for_the_device_of_its_tensors() -> None:
    def f(x: Any) -> Any:
        return (x * 2 + 1).relu()

    compiled = torch.compile(f)
    for where in ("slate", "cpu", "slate"):
        got = compiled(torch.tensor([-3.0, 1.0]).to(where))
        assert got.device.type == where
        assert got.tolist() == [0.0, 3.0]


def test_groups_of_ops_become_one_kernel() -> None:
    """A backend that takes groups: fewer kernels, the same numbers, rounded as if stored."""
    kind, made = type(backends.get("slate")), []

    class Grouped(Groups, kind):  # type: ignore[misc, valid-type]
        def writer(self) -> Any:
            made.append(1)
            return super().writer()

    backends.register("grouped", Grouped())

    def f(x: Any, y: Any) -> Any:
        a = (x * y + 0.3).tanh()
        return (a.double() * 1.1).float() - a.unsqueeze(0)

    x, y = torch.randn(3, 4), torch.randn(4)
    compiled = torch.compile(f)
    got = compiled(x.to("grouped"), y.to("grouped"))
    assert (got.cpu() - f(x, y)).abs().max().item() < 1e-6
    assert len(made) <= 4  # asked whether it can, and made


def test_a_training_step_is_one_program_though_counters_are_on_the_host() -> None:
    """Optimizers count steps in tensors of the host: a program brings them there and back."""
    torch.manual_seed(0)
    models = [nn.Linear(3, 2), nn.Linear(3, 2)]
    models[1].load_state_dict(models[0].state_dict())
    models[1].to("slate")
    losses = []
    for model, where in zip(models, ("cpu", "slate"), strict=True):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

        def step(x: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
            loss = model(x).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        compiled = torch.compile(step)
        losses.append([compiled(torch.ones(1, 3).to(where)).item() for _ in range(3)])
        assert len(compiled.entries) == 1
        assert compiled.given_up is None
        count = next(iter(optimizer.state.values()))["step"]
        assert (count.device.type, count.item()) == ("cpu", 3.0)
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert len(backends.bill()) == 0


def test_results_on_two_devices_are_not_one_program() -> None:
    counter = torch.zeros(())

    def f(x: Any) -> Any:
        return x * 2, counter + 1

    got, count = torch.compile(f)(there(1.0))
    assert (got.tolist(), count.item(), count.device.type) == ([2.0], 1.0, "cpu")
