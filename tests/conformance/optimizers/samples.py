"""torch's optimizer database: every configuration of every optimizer, and what each refuses."""

import functools
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

TIER = "optim"
OPTIMIZERS = 15
ERRORS = 124

STEPS = 6
SHAPES: tuple[tuple[int, ...], ...] = ((4, 3), (5,), ())
MATRICES: tuple[tuple[int, ...], ...] = ((4, 3), (5, 2))  # Muon takes nothing else


@dataclass(frozen=True)
class Setup:
    """One configuration: the arguments of the constructor, and what it optimizes."""

    label: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    shapes: tuple[tuple[int, ...], ...] = SHAPES
    dtype: torch.dtype = torch.float32
    sparse: bool = False  # gradients have a few rows only
    closure: bool = False
    groups: bool = False  # two parameter groups, the second with its own options
    named: bool = False

    @property
    def steps(self) -> int:
        """Steps to compare; with a closure each is many."""
        return 2 if self.closure else STEPS

    @property
    def differentiable(self) -> bool:
        return bool(self.kwargs.get("differentiable"))

    def numbers(self, seed: int) -> list[torch.Tensor]:
        """Fixed numbers, one tensor for each parameter."""
        draws = np.random.RandomState(seed)
        return [_drawn(draws, shape, self.dtype) for shape in self.shapes]

    def gradients(self, step: int) -> list[torch.Tensor]:
        """The gradients of one step, the same for both sides."""
        found = self.numbers(100 + step)
        return [_few_rows(g, step) for g in found] if self.sparse else found


@functools.cache
def load() -> dict[str, Any]:
    """torch's OptimizerInfo by class name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_optimizers import optim_db
    found = {info.name: info for info in optim_db}
    if len(found) != OPTIMIZERS:
        raise RuntimeError(f"torch's optimizer database changed: {len(found)}")
    return found


def setups(name: str) -> list[Setup]:
    """All configurations of the database, with every flag; then groups, names, complex, sparse."""
    info = load()[name]
    make = functools.partial(
        Setup,
        shapes=MATRICES if name in ("Muon", "SparseAdam") else SHAPES,
        sparse=info.only_supports_sparse_grads,
        closure=info.step_requires_closure,
        # a closure is called until convergence, where float32 only compares noise
        dtype=torch.float64 if info.step_requires_closure else torch.float32,
    )
    inputs = list(info.optim_inputs_func(device="cpu"))
    found = [
        make(f"{x.desc}{suffix}#{i}", {**x.kwargs, **flags})
        for i, x in enumerate(inputs)
        for suffix, flags in _flags(info).items()
    ]
    if info.supports_param_groups:
        found.append(make("two groups#0", groups=True))
        found.append(make("named#0", named=True))
    if info.supports_complex:
        complex_dtype = torch.complex128 if info.step_requires_closure else torch.complex64
        found.append(make("complex#0", dtype=complex_dtype))
    found.append(make("float64#0", dtype=torch.float64))
    if info.supports_sparse:
        options = info.metadata_for_sparse[0]
        found.append(Setup("sparse gradients#0", options, shapes=MATRICES, sparse=True))
    return found


def error_cases(name: str) -> list[tuple[str, Any]]:
    """torch's ErrorOptimizerInput, labelled."""
    function = load()[name].optim_error_inputs_func
    if function is None:
        return []
    torch.manual_seed(0)
    return [(f"error#{i}", case) for i, case in enumerate(function("cpu", torch.float32))]


def _flags(info: Any) -> dict[str, dict[str, bool]]:
    """The implementations that can be asked for; torch's CPU runs all of them."""
    known = [
        flag for flag in ("foreach", "differentiable", "fused") if flag in info.supported_impls
    ]
    fused = "cpu" in info.supports_fused_on
    names = [flag for flag in known if flag != "fused" or fused]
    if not names:
        return {"": {}}
    off = dict.fromkeys(names, False)
    return {"": off, **{f" {flag}": {**off, flag: True} for flag in names}}


def _drawn(draws: np.random.RandomState, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
    numbers = np.asarray(draws.standard_normal(shape))
    if dtype.is_complex:
        numbers = numbers + 1j * np.asarray(draws.standard_normal(shape))
    return torch.from_numpy(np.asarray(numbers)).to(dtype)


def _few_rows(g: torch.Tensor, step: int) -> torch.Tensor:
    """A sparse gradient: two rows, one of them twice."""
    rows = torch.tensor([[step % len(g), 0, 0]])
    return torch.sparse_coo_tensor(rows, g[[0, 1, 2]], g.shape, check_invariants=True)
