"""The native tensor type and dispatcher: the Python path's meaning, no leaks, no surprises."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import threading
import weakref
from typing import Any

import pytest

import lucerne as torch
from lucerne import backends

F = torch.nn.functional
FAST = backends.fast_path()
pytestmark = pytest.mark.skipif(FAST is None, reason="the host backend has no fast path")


def vector(*values: float, grad: bool = False) -> Any:
    return torch.tensor([float(v) for v in values], requires_grad=grad)


def refused(a: Any) -> None:
    with pytest.raises(RuntimeError):
        a + torch.ones(3)


# ---- objects -----------------------------------------------------------------------------------

CALLS = {
    "add": lambda a, x: a + a,
    "number": lambda a, x: a * 2.5,
    "reflected": lambda a, x: 2 - a,
    "storage": lambda a, x: (a + a)._storage,
    "subscript": lambda a, x: a[0],
    "slices": lambda a, x: a[1:3],
    "view": lambda a, x: a.view(2, 2),
    "recorded": lambda a, x: x * a,
    "expanded": lambda a, x: (x * a).grad_fn,
    "in place": lambda a, x: a.add_(0.0),
    "attribute": lambda a, x: setattr(a + a, "note", a),
    "linear": lambda a, x: F.linear(a.view(1, 4), a.view(1, 4)),
    "comparison": lambda a, x: a == a,
    "sum": lambda a, x: a.sum(),
    "failing": lambda a, x: refused(a),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_reference_is_lost_or_kept(name: str) -> None:
    """The counts of the objects that machine code touches do not drift."""
    a, x = vector(1, 2, 3, 4), vector(1, 2, 3, 4, grad=True)
    watched = [True, False, float, int, tuple, torch.Tensor, a._meta, type(a._storage)]
    for _ in range(5):
        CALLS[name](a, x)
    gc.collect(0)
    gc.freeze()  # what other tests have left is not freed meanwhile
    try:
        before = [sys.getrefcount(w) for w in watched]
        for _ in range(300):
            CALLS[name](a, x)
        gc.collect()
        drift = [sys.getrefcount(w) - b for w, b in zip(watched, before, strict=True)]
    finally:
        gc.unfreeze()
    assert all(abs(d) < 100 for d in drift), drift


def test_memory_comes_back() -> None:
    a = torch.ones(1 << 16)
    start = torch.memory_allocated()
    for _ in range(50):
        a = a + 1
        b = a.view(256, 256)[3]
    assert torch.memory_allocated() <= start + 2 * a.nbytes
    assert b[0].item() == 51


def test_cycles_are_collected() -> None:
    a = vector(1) + vector(2)
    a.me = a
    watch = weakref.ref(a)
    del a
    gc.collect()
    assert watch() is None
    x = vector(1, grad=True)
    y = x * 2
    y.back = y
    watch = weakref.ref(y)
    del y
    gc.collect()
    assert watch() is None


def test_instances_take_attributes_and_survive_copies() -> None:
    a = vector(1, 2) + vector(1, 1)
    a.note = "kept"
    assert copy.deepcopy(a).tolist() == pickle.loads(pickle.dumps(a)).tolist() == [2, 3]
    assert a.__dict__ == {"note": "kept"}


class Named(torch.Tensor):
    """A user's subclass: goes through __torch_function__, never through the fast path."""


def test_subclasses_keep_their_type() -> None:
    a = vector(1, 2).as_subclass(Named)
    for made in (a + 1, 1 + a, a + vector(1, 1), vector(1, 1) + a, a[0], a.view(2, 1), a.exp()):
        assert type(made) is Named


# ---- histories -----------------------------------------------------------------------------------


def test_a_record_keeps_the_history_its_arguments_had() -> None:
    x, w = vector(1, 2, grad=True), vector(3, 4)
    for _ in range(3):
        y = x * 2
        z = y + w
        y.add_(1)  # the add did not save y: backward goes through the old history
        w.requires_grad_()
        z.sum().backward()
        assert x.grad.tolist() == [2, 2]
        assert w.grad is None
        x.grad = None
        w = vector(3, 4)


def test_a_stale_saved_tensor_names_both_lines() -> None:
    x, w = vector(1, 2, grad=True), vector(3, 4)
    for _ in range(3):
        y = x * w
        w.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace") as told:
            y.sum().backward()
        assert str(told.value).count("test_native.py") == 2


def test_long_chains_need_no_recursion() -> None:
    x = vector(1, grad=True)
    y = x
    for _ in range(20_000):
        y = y + 1
    y.backward()
    assert x.grad.item() == 1
    del y
    gc.collect()


def test_views_learn_that_their_base_needs_gradients() -> None:
    w = vector(2, 2, 2, 2, grad=True)
    for _ in range(3):
        base = torch.ones(4)
        view, part = base.view(2, 2), base[0]
        base.mul_(w)
        assert view.requires_grad
        assert part.requires_grad
        later = torch.ones(4)
        seen = later.view(2, 2)
        later.requires_grad_()
        assert not seen.requires_grad


def test_gradients_are_not_shared() -> None:
    a, b = vector(1, 2, grad=True), vector(1, 2, grad=True)
    given, kept = torch.ones(2), []
    for _ in range(2):
        a.grad = b.grad = None
        (a + b).backward(given)
        assert len({a.grad.data_ptr(), b.grad.data_ptr(), given.data_ptr()}) == 3
    handle = a.register_hook(kept.append)
    (a * 2).sum().backward()
    handle.remove()
    a.grad.zero_()
    assert kept[0].tolist() == [2, 2]


# ---- remembered calls ----------------------------------------------------------------------------


def test_floats_are_not_frozen_into_remembered_calls() -> None:
    a = vector(1, 2)
    for k in (0.5, 0.25, 4.0):
        assert (a * k).tolist() == [k, 2 * k]
        assert torch.add(a, a, alpha=k).tolist() == [1 + k, 2 + 2 * k]
        assert a.clamp(max=k + 1).tolist() == [1, min(2, k + 1)]
        assert F.leaky_relu(-a, k).tolist() == [-k, -2 * k]
        assert torch.full((2,), k).tolist() == [k, k]


def test_created_tensors_require_grad_each_time() -> None:
    for _ in range(4):
        assert torch.ones(2, requires_grad=True).requires_grad
        assert not torch.ones(2).requires_grad


def test_defaults_reach_remembered_calls() -> None:
    for _ in range(3):
        assert torch.zeros(2).dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.zeros(2).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.zeros(2).dtype is torch.float32


def test_a_call_that_warns_warns_each_time() -> None:
    for _ in range(3):
        with pytest.warns(UserWarning, match="Implicit dimension") as told:
            F.softmax(vector(1, 2))
        assert told[0].filename == __file__


def test_results_are_new_each_time() -> None:
    a = vector(1, 2)
    made = [torch.zeros(2), torch.zeros(2), torch.zeros(2), a.clone(), a.clone(), a.exp(), a.exp()]
    assert len({m.data_ptr() for m in made}) == len(made)


def test_no_grad_and_inference_reach_the_fast_path() -> None:
    x = vector(1, 2, grad=True)
    for _ in range(3):
        with torch.no_grad():
            assert not (x * 2).requires_grad
            assert not F.relu(x).requires_grad
        assert (x * 2).requires_grad
        with torch.inference_mode():
            assert (vector(1) + 1).is_inference()
        assert not (vector(1) + 1).is_inference()


def test_saved_tensor_hooks_see_every_saved_tensor() -> None:
    x, seen = vector(1, 2, grad=True), []

    def pack(t: Any) -> Any:
        seen.append(t)
        return t

    for _ in range(2):
        x * x
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = x * x
    y.sum().backward()
    assert len(seen) == 2


def test_other_threads_get_the_same_results() -> None:
    a, found = vector(1, 2), []
    for _ in range(3):
        a + a
    worker = threading.Thread(target=lambda: found.append((a + a).tolist()))
    with torch.no_grad():
        worker.start()
        worker.join()
    assert found == [[2, 4]]


def test_errors_of_kernels_are_errors_of_calls() -> None:
    a = torch.tensor([1, 2])
    for _ in range(3):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            a // torch.tensor([1, 0])
        with pytest.raises(IndexError):
            vector(1, 2)[5]


def test_public_functions_look_like_functions() -> None:
    assert torch.add.__name__ == "add"
    assert torch.relu.__doc__
    assert pickle.loads(pickle.dumps(torch.add)) is torch.add
    assert torch.Tensor.exp is torch.exp
    assert callable(vector(1).exp)


PROGRAM = """
import lucerne as torch
F = torch.nn.functional
torch.manual_seed(3)
x = torch.randn(5, 4, requires_grad=True); w = torch.randn(3, 4, requires_grad=True)
out = []
for step in range(4):
    h = F.relu(F.linear(x, w)); y = (h * 0.5 + h[0]).view(-1)[1:].softmax(0)
    loss = (y * torch.arange(14.)).sum() + h.t().contiguous().mean()
    loss.backward()
    with torch.no_grad():
        x -= 0.1 * x.grad; w.add_(w.grad, alpha=-0.1); x.grad = None; w.grad = None
    out.append(loss.item())
print([v.hex() for v in out])
"""


def test_both_paths_give_the_same_bits() -> None:
    """The same program with the fast path and without it."""
    texts = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"LUCERNE_FAST_PATH": flag, "LUCERNE_HOST_BACKEND": "cpu", "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for flag in ("0", "1")
    }
    assert len(texts) == 1


def test_floats_that_decide_are_part_of_the_key() -> None:
    a = vector(3, 4)
    for _ in range(2):
        for p, want in ((1.0, 7.0), (2.0, 5.0), (1.0, 7.0)):
            assert torch.linalg.vector_norm(a, p).item() == want
            assert a.norm(p).item() == want
        for slope in (0.5, 0.25):
            assert F.leaky_relu(-a, slope).tolist() == [-3 * slope, -4 * slope]
        for beta in (1.0, 2.0):
            near = F.softplus(torch.zeros(1), beta).item()
            assert near == pytest.approx(0.6931471805599453 / beta)


# ---- one thing given twice ---------------------------------------------------------------------

TWICE = {
    "mul": (lambda a, b: torch.mul(a, b), [5.0, 14.0]),
    "rsub": (lambda a, b: torch.rsub(a, b), [4.0, 5.0]),
    "clamp": (lambda a, b: torch.clamp(a, b[0].item(), b[1].item()), [5.0, 5.0]),
    "addcmul": (lambda a, b: torch.addcmul(a, b, a), [6.0, 16.0]),
}


@pytest.mark.parametrize("name", TWICE)
def test_call_with_one_tensor_twice_teaches_nothing_wrong(name: str) -> None:
    """After `f(x, x)` the engine must not take `f(a, b)` for `f(a, a)`."""
    call, expected = TWICE[name]
    for _ in range(3):
        x = vector(3, 4)
        call(x, x)
    assert call(vector(1, 2), vector(5, 7)).tolist() == expected


def test_learned_call_keeps_no_tensor_alive() -> None:
    a, b = vector(1, 2, 3, 4, 5, 6, 7), vector(1, 2, 3, 4, 5, 6, 7)
    gone = weakref.ref(a)
    torch.maximum(a, b)
    torch.maximum(a, b)
    del a
    gc.collect()
    assert gone() is None


def test_a_fresh_gradient_is_taken_over_not_copied() -> None:
    """No copy: what backward allocates is the gradients, and no more than it needs on the way."""
    w = torch.ones(256, 256, requires_grad=True)
    x = torch.ones(64, 256)
    for _ in range(3):
        w.grad = None
        loss = F.linear(x, w).sum()
        before = torch.memory_stats()["allocations"]
        loss.backward()
        made = torch.memory_stats()["allocations"] - before
    # ones for the loss, the expanded gradient made dense for the product, dW
    assert made <= 6, made
    big = torch.ones(1000, requires_grad=True)
    (big * 2).sum().backward()
    assert big.grad.tolist() == [2.0] * 1000


def test_a_device_context_reaches_remembered_calls() -> None:
    for _ in range(3):
        assert torch.zeros(2).device.type == "cpu"
        with torch.device("meta"):
            assert torch.zeros(2).device.type == "meta"
    torch.set_default_device("meta")
    try:
        assert torch.zeros(2).device.type == "meta"
    finally:
        torch.set_default_device(None)


def test_ever_new_floats_neither_leak_nor_fill_the_table() -> None:
    """Floats that decide are remembered a few times; those that are numbers of a kernel always."""
    assert FAST is not None
    x, y = torch.ones(7), torch.ones(7)
    before = len(FAST.entered)
    for i in range(100):
        value = 0.5 + i / 1024
        assert x.clamp(max=value)[0].item() == value
        assert torch.add(x, y, alpha=value)[0].item() == 1 + value
        assert torch.full_like(x, 3.0).mul_(value)[0].item() == 3 * value
    assert len(FAST.entered) - before < 60


def test_a_write_over_memory_it_reads_is_refused_after_calls_that_were_fine() -> None:
    """`.data` is another storage over the same memory: remembered calls must see that too."""
    x, y = torch.ones(3, 3), torch.ones(3, 3).t()
    for _ in range(3):
        x.add_(y)
    for alias in (x.data.t(), x.detach().t()):
        with pytest.raises(RuntimeError, match="single memory location"):
            x.add_(alias)


def test_an_argument_that_needs_a_gradient_later_gets_it() -> None:
    """What was remembered without a gradient for the mask or weight is not for a call with one."""
    functional = torch.nn.functional
    q, mask = torch.rand(1, 2, 4, 8, requires_grad=True), torch.zeros(4, 4)
    x, target, weight = torch.rand(3, 4, requires_grad=True), torch.tensor([0, 1, 2]), torch.ones(4)
    for _ in range(4):
        functional.scaled_dot_product_attention(q, q.detach(), q.detach(), mask).sum().backward()
        functional.cross_entropy(x, target, weight).backward()
    mask, weight = torch.zeros(4, 4, requires_grad=True), torch.ones(4, requires_grad=True)
    functional.scaled_dot_product_attention(q, q.detach(), q.detach(), mask).sum().backward()
    functional.cross_entropy(x, target, weight).backward()
    assert mask.grad is not None
    assert weight.grad is not None
