"""Every optimizer against PyTorch: parameters after each step, states, reprs, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import lucerne as lu  # noqa: E402
from tests.optim.bridge import assert_close, to_lucerne, to_torch  # noqa: E402

pytestmark = pytest.mark.torch

SHAPES = ((4, 3), (5,), ())
MATRICES = ((4, 3), (5, 2))

CONFIGS: list[tuple[str, dict[str, Any]]] = [
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.1, "rho": 0.95, "weight_decay": 0.9, "foreach": True}),
    ("Adadelta", {"maximize": True, "eps": 1e-4}),
    ("Adafactor", {}),
    ("Adafactor", {"weight_decay": 0.1, "maximize": True, "d": 1.5}),
    ("Adafactor", {"eps": (1e-6, 1e-2), "beta2_decay": -0.6, "foreach": True}),
    ("Adagrad", {}),
    ("Adagrad", {"lr_decay": 0.5, "weight_decay": 0.1, "initial_accumulator_value": 0.1}),
    ("Adagrad", {"maximize": True, "fused": True}),
    ("Adam", {}),
    ("Adam", {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1, "maximize": True}),
    ("Adam", {"decoupled_weight_decay": True, "weight_decay": 0.1, "foreach": True}),
    ("Adam", {"fused": True, "amsgrad": True}),
    ("Adam", {"lr": torch.tensor(0.01)}),
    ("AdamW", {}),
    ("AdamW", {"amsgrad": True, "weight_decay": 0.9, "fused": True}),
    ("AdamW", {"maximize": True, "foreach": True}),
    ("Adamax", {}),
    ("Adamax", {"lr": 0.1, "weight_decay": 0.9, "maximize": True, "foreach": True}),
    ("ASGD", {}),
    ("ASGD", {"lr": 0.1, "t0": 2, "lambd": 0.1, "weight_decay": 0.1}),
    ("ASGD", {"t0": 0, "maximize": True, "foreach": True}),
    ("Muon", {}),
    ("Muon", {"lr": 0.1, "nesterov": False, "weight_decay": 0.0, "ns_steps": 3}),
    ("Muon", {"adjust_lr_fn": "match_rms_adamw", "momentum": 0.8}),
    ("NAdam", {}),
    ("NAdam", {"momentum_decay": 0.006, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("NAdam", {"weight_decay": 0.1, "maximize": True, "foreach": True}),
    ("RAdam", {}),
    ("RAdam", {"betas": (0.9, 0.8), "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"betas": (0.9, 0.8), "weight_decay": 0.1, "maximize": True, "foreach": True}),
    ("RMSprop", {}),
    ("RMSprop", {"centered": True, "momentum": 0.1, "weight_decay": 0.1}),
    ("RMSprop", {"momentum": 0.5, "maximize": True, "alpha": 0.9, "foreach": True}),
    ("Rprop", {}),
    ("Rprop", {"lr": 0.1, "etas": (0.4, 1.5), "step_sizes": (1e-3, 1), "maximize": True}),
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.5, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"lr": torch.tensor(0.1), "momentum": 0.9, "foreach": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "fused": True}),
]  # fmt: skip


def shown(row: Any) -> str:
    return "-".join(str(x) for x in row)


class Pair:
    """The same optimizer over the same parameters, in both frameworks."""

    def __init__(self, name: str, options: dict[str, Any], dtype: Any = torch.float32) -> None:
        self.name, self.dtype = name, dtype
        self.shapes = MATRICES if name == "Muon" else SHAPES
        self.rng = np.random.default_rng(0)
        self.theirs = [self.random(s).requires_grad_() for s in self.shapes]
        self.mine = to_lucerne(self.theirs)
        own = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in options.items()}
        self.torch = getattr(torch.optim, name)(self.theirs, **own)
        self.lucerne = getattr(lu.optim, name)(self.mine, **to_lucerne(options))

    def random(self, shape: tuple[int, ...]) -> Any:
        x = self.rng.standard_normal(shape)
        if self.dtype.is_complex:
            x = x + 1j * self.rng.standard_normal(shape)
        return torch.from_numpy(np.asarray(x)).to(self.dtype)

    def step(self) -> None:
        for p, q in zip(self.theirs, self.mine, strict=True):
            p.grad = self.random(tuple(p.shape))
            q.grad = to_lucerne(p.grad)
        self.torch.step()
        self.lucerne.step()

    def check(self, tolerance: float = 1e-5) -> None:
        assert_close(self.mine, self.theirs, tolerance, tolerance, self.name)

    def check_states(self, tolerance: float = 1e-4) -> None:
        mine, theirs = self.lucerne.state_dict(), self.torch.state_dict()
        assert_close(mine, theirs, tolerance, tolerance, self.name)


@pytest.mark.parametrize("row", CONFIGS, ids=shown)
def test_steps_and_states(row: tuple[str, dict[str, Any]]) -> None:
    pair = Pair(*row)
    assert repr(pair.lucerne) == repr(pair.torch)
    for _ in range(5):
        pair.step()
        pair.check()
    pair.check_states()


WIDE = [row for row in CONFIGS if not any(isinstance(v, torch.Tensor) for v in row[1].values())]


@pytest.mark.parametrize("row", WIDE[::2], ids=shown)
def test_float64(row: tuple[str, dict[str, Any]]) -> None:
    pair = Pair(*row, dtype=torch.float64)
    for _ in range(4):
        pair.step()
    pair.check(1e-6 if row[0] in ("ASGD", "Muon", "NAdam") else 1e-9)
    pair.check_states(1e-6)


COMPLEX = [row for row in WIDE if row[0] not in ("Adafactor", "Muon") and not row[1].get("fused")]


@pytest.mark.parametrize("row", COMPLEX[1::2], ids=shown)
def test_complex(row: tuple[str, dict[str, Any]]) -> None:
    pair = Pair(*row, dtype=torch.complex64)
    for _ in range(4):
        pair.step()
        pair.check()
    pair.check_states()


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD"])
def test_bfloat16_is_near_torchs_fused(name: str) -> None:
    options: dict[str, Any] = {"lr": 0.1, "fused": True}
    pair = Pair(name, options | ({"momentum": 0.9} if name == "SGD" else {}), torch.bfloat16)
    for _ in range(4):
        pair.step()
        pair.check(2e-2)


@pytest.mark.parametrize("row", CONFIGS[1::3], ids=shown)
def test_states_travel_both_ways(row: tuple[str, dict[str, Any]]) -> None:
    """After some steps each framework goes on with the state the other has saved."""
    pair = Pair(*row)
    for _ in range(3):
        pair.step()
    mine, theirs = pair.lucerne.state_dict(), pair.torch.state_dict()
    fresh = Pair(*row)
    for p, q in zip(fresh.theirs, pair.theirs, strict=True):
        p.data.copy_(q.data)
    for p, q in zip(fresh.mine, pair.mine, strict=True):
        p.data.copy_(q.data)
    fresh.torch.load_state_dict(to_torch(mine))
    fresh.lucerne.load_state_dict(to_lucerne(theirs))
    fresh.check_states()
    for _ in range(2):
        fresh.step()
        fresh.check()
    fresh.check_states()


# ---- recorded steps ---------------------------------------------------------------------------

DIFFERENTIABLE = [
    ("Adadelta", {"weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.1, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.1, "amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.1, "maximize": True}),
    ("Adamax", {"lr": 0.1}),
    ("ASGD", {"lr": 0.1}),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.1}),
    ("RAdam", {"lr": 0.1, "betas": (0.9, 0.7)}),
    ("RMSprop", {"lr": 0.1, "momentum": 0.5, "centered": True}),
    ("Rprop", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
]


def _after_steps(module: Any, name: str, options: dict[str, Any], start: Any, steps: int) -> Any:
    """The parameters after some steps, recorded."""
    p = start.clone()
    optimizer = getattr(module.optim, name)([p], differentiable=True, **options)
    for k in range(steps):
        p.grad = (start * start) * (k + 1) + 0.3
        optimizer.step()
    return p


def _start(module: Any) -> Any:
    return module.tensor([0.5, -1.5, 2.0], dtype=module.float64, requires_grad=True)


@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=shown)
def test_differentiable(row: tuple[str, dict[str, Any]]) -> None:
    found = []
    for module in (lu, torch):
        start = _start(module)
        p = _after_steps(module, *row, start, 1)
        found.append(module.autograd.grad((p * p).sum(), start)[0])
    assert_close(found[0], found[1], 1e-5, 1e-5, row[0])


SEVERAL = [*DIFFERENTIABLE[:-1], ("SGD", {"lr": 0.1, "weight_decay": 0.1})]
"""(The first momentum buffer of SGD is detached, here as there.)"""


@pytest.mark.parametrize("row", SEVERAL, ids=shown)
def test_several_steps_are_differentiable(row: tuple[str, dict[str, Any]]) -> None:
    """PyTorch's own cannot do this for five of them: they write over what they keep."""

    def run(start: Any) -> Any:
        return _after_steps(lu, *row, start, 3)

    assert lu.autograd.gradcheck(run, (_start(lu),), eps=1e-6, atol=1e-4)


@pytest.mark.parametrize("name", ["Adam", "SGD"])
def test_gradient_of_the_rate(name: str) -> None:
    found = []
    for module in (lu, torch):
        lr = module.tensor(0.1, dtype=module.float64, requires_grad=True)
        start = module.tensor([1.0, 2.0], dtype=module.float64, requires_grad=True)
        p = start.clone()
        optimizer = getattr(module.optim, name)([p], lr=lr, differentiable=True)
        p.grad = module.tensor([0.5, -0.25], dtype=module.float64)
        optimizer.step()
        found.append(module.autograd.grad((p * p).sum(), lr)[0])
    assert_close(found[0], found[1], 1e-4, 1e-4)


# ---- L-BFGS -----------------------------------------------------------------------------------


def _minimize(module: Any, options: dict[str, Any], dtype: str) -> tuple[list[float], Any]:
    x = module.tensor([-1.5, 2.0], dtype=getattr(module, dtype), requires_grad=True)
    optimizer = module.optim.LBFGS([x], **options)
    seen: list[float] = []

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (1 - x[0]) ** 2 + 10 * (x[1] - x[0] ** 2) ** 2
        loss.backward()
        seen.append(loss.item())
        return loss

    for _ in range(4):
        optimizer.step(closure)
    return seen, optimizer.state[x]


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_evaluates_the_same_points(search: str | None) -> None:
    options = {"max_iter": 6, "line_search_fn": search, "lr": 0.5, "history_size": 3}
    mine, state = _minimize(lu, options, "float64")
    theirs, expected = _minimize(torch, options, "float64")
    np.testing.assert_allclose(mine, theirs, 1e-5, 1e-9)
    assert list(state) == list(expected)
    for name in ("n_iter", "func_evals"):
        assert state[name] == expected[name]


# ---- sparse gradients -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda t: _step_of(t, t.ones(3, requires_grad=True)),
        lambda t: t.optim.SparseAdam([t.ones(2).to_sparse().requires_grad_()]),
    ],
)
def test_sparse_adam_refuses_in_torchs_words(call: Any) -> None:
    told = []
    for t in (lu, torch):
        with pytest.raises((RuntimeError, ValueError)) as error:
            call(t)
        told.append((error.type, str(error.value)))
    assert told[0] == told[1]


def _step_of(t: Any, x: Any) -> None:
    x.sum().backward()
    t.optim.SparseAdam([x]).step()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SparseAdam", {"lr": 0.1}),
        ("SparseAdam", {"maximize": True}),
        ("Adagrad", {"lr": 0.1}),
        ("SGD", {"lr": 0.1}),
    ],
)
def test_sparse_gradients(name: str, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    start = torch.from_numpy(rng.standard_normal((4, 3))).float()
    p, q = start.clone().requires_grad_(), to_lucerne(start).requires_grad_()
    a, b = getattr(torch.optim, name)([p], **options), getattr(lu.optim, name)([q], **options)
    with torch.sparse.check_sparse_tensor_invariants(False):
        for rows in ([0, 2], [2, 2], [3, 1]):
            values = torch.from_numpy(rng.standard_normal((2, 3))).float()
            p.grad = torch.sparse_coo_tensor([rows], values, (4, 3))
            q.grad = lu.sparse_coo_tensor([rows], to_lucerne(values), (4, 3))
            a.step()
            b.step()
            assert_close(q, p)
    assert_close(b.state_dict(), a.state_dict(), 1e-5, 1e-5)


# ---- mistakes ---------------------------------------------------------------------------------

MISTAKES: list[tuple[str, dict[str, Any]]] = [
    *((name, {"lr": -1}) for name in dict(CONFIGS)),
    *((name, {"lr": "two"}) for name in ("Adam", "SGD", "SparseAdam", "LBFGS", "Muon")),
    *((name, {"weight_decay": -1}) for name in dict(CONFIGS) if name != "Rprop"),
    *((name, {"betas": (0.9, 1.0)}) for name in ("Adam", "Adamax", "NAdam", "RAdam")),
    *((name, {"eps": -1}) for name in ("Adam", "Adadelta", "Adagrad", "RMSprop")),
    ("Adadelta", {"rho": 2}), ("Adagrad", {"lr_decay": -1}),
    ("Adagrad", {"initial_accumulator_value": -1}), ("Adafactor", {"eps": (-1, 1)}),
    ("Adafactor", {"eps": (1, -1)}), ("Adafactor", {"d": 0}), ("Adafactor", {"beta2_decay": 1}),
    ("Adam", {"fused": True, "foreach": True}), ("Adam", {"fused": True, "differentiable": True}),
    ("Adam", {"betas": (0.9, "tensor")}), ("Adam", {"lr": "tensor", "foreach": True}),
    ("SGD", {"momentum": -1}), ("SGD", {"nesterov": True}),
    ("SGD", {"nesterov": True, "momentum": 0.9, "dampening": 0.1}),
    ("NAdam", {"momentum_decay": -1}),
    ("RMSprop", {"momentum": -1}), ("RMSprop", {"alpha": -1}), ("Rprop", {"etas": (1.0, 0.5)}),
    ("Muon", {"adjust_lr_fn": "no"}), ("Muon", {"momentum": -1}), ("SparseAdam", {"lr": -1}),
    ("SparseAdam", {"eps": -1}), ("SparseAdam", {"betas": (1.0, 0.1)}),
]  # fmt: skip


def _message(module: Any, name: str, options: dict[str, Any]) -> tuple[type, str]:
    values = {"two": lambda: module.tensor([0.1, 0.2]), "tensor": lambda: module.tensor(0.1)}

    def real(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(real, value))
        return values[value]() if value in ("two", "tensor") else value

    made, given = module.ones(2, 2, requires_grad=True), {k: real(v) for k, v in options.items()}
    with pytest.raises((ValueError, RuntimeError)) as caught:
        getattr(module.optim, name)([made], **given)
    return caught.type, str(caught.value)


@pytest.mark.parametrize("row", MISTAKES, ids=shown)
def test_mistakes_are_told_in_the_same_words(row: tuple[str, dict[str, Any]]) -> None:
    assert _message(lu, *row) == _message(torch, *row)


@pytest.mark.parametrize("name", sorted({*dict(CONFIGS)} - {"Adagrad", "SGD"}))
def test_sparse_gradients_are_refused(name: str) -> None:
    p = lu.ones(2, 2, requires_grad=True)
    p.grad = lu.sparse_coo_tensor([[0], [0]], [1.0], (2, 2))
    with pytest.raises(RuntimeError, match="does not support sparse gradients"):
        getattr(lu.optim, name)([p]).step()


@pytest.mark.parametrize("name", ["Adam", "Adamax", "NAdam", "RMSprop", "Rprop", "ASGD"])
def test_capturable_needs_another_device(name: str) -> None:
    said = []
    for module in (lu, torch):
        p = module.ones(2, requires_grad=True)
        p.grad = module.ones(2)
        optimizer = getattr(module.optim, name)([p], capturable=True, foreach=False)
        with pytest.raises(AssertionError) as caught:
            optimizer.step()
        said.append(str(caught.value))
    assert said[0] == said[1]
