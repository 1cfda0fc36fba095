"""What running a program gave: outputs, gradients, written inputs, who shares memory with whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.compiler.around import AROUND
from tests.compiler.inputs import Argument, Array, tensors
from tests.compiler.program import Program


@dataclass
class Facts:
    """A tensor, taken apart."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    requires_grad: bool
    bits: Array
    """As stored (bfloat16 as int16)."""
    values: Array
    """float64, int64 or bool."""


@dataclass
class Outcome:
    error: str = ""
    message: str = ""
    tensors: dict[str, Facts] = field(default_factory=dict)
    """ "output 0", "gradient of x1", "input x0" and so on."""
    others: dict[str, Any] = field(default_factory=dict)
    """Outputs that are no tensors."""
    sharing: list[str] = field(default_factory=list)


def facts(t: Any, module: Any) -> Facts:
    x = t.detach()
    dtype = str(t.dtype).rpartition(".")[2]
    if dtype == "bfloat16":
        bits = np.array(x.view(module.int16).numpy())
        values = (bits.astype(np.uint16).astype(np.uint32) << 16).view(np.float32)
        values = values.astype(np.float64).reshape(bits.shape)
    else:
        bits = np.array(x.numpy())
        wide = np.float64 if bits.dtype.kind == "f" else bits.dtype
        values = bits.astype(np.int64 if bits.dtype.kind == "i" else wide)
    return Facts(dtype, tuple(t.shape), tuple(t.stride()), bool(t.requires_grad), bits, values)


def run(
    program: Program, module: Any, fn: Callable[..., Any], variant: int = 0, alike: bool = False
) -> Outcome:
    """Calls `fn` with new arguments, goes back through the gradients if the program says so.

    `alike`: gradients come in laid out as the outputs are.
    """
    given = tensors(program, module, variant)
    try:

        def back(outputs: list[Any]) -> None:
            if program.grad != "none":
                differentiate(program, module, outputs, alike)

        outputs = AROUND[program.around](module, fn, given, back)
    except Exception as e:
        return Outcome(error=type(e).__name__, message=str(e))
    return taken(outputs, given, module)


def differentiate(program: Program, module: Any, outputs: list[Any], alike: bool = False) -> None:
    """Backward from the outside, with fixed numbers for what comes in."""
    ends: list[Any] = []
    for o in outputs:
        if getattr(o, "requires_grad", False) and not any(o is e for e in ends):
            ends.append(o)
    if program.grad == "first":
        ends = ends[:1]
    if not ends:
        return
    if program.grad == "sum" and not alike:
        total = ends[0].sum()
        for e in ends[1:]:
            total = total + e.sum()
        total.backward()
        return
    grads = []
    for k, e in enumerate(ends):
        a = np.random.default_rng([program.seed, k]).integers(-4, 5, tuple(e.shape)) / 4.0
        g = module.from_numpy(np.array(a, np.float32)).to(e.dtype)
        grads.append(module.empty_like(e.detach()).copy_(g) if alike else g)
    module.autograd.backward(ends, grads)


def taken(outputs: list[Any], given: list[Argument], module: Any) -> Outcome:
    made = Outcome()
    named: list[tuple[str, Any]] = []
    for k, o in enumerate(outputs):
        if isinstance(o, module.Tensor):
            made.tensors[f"output {k}"] = facts(o, module)
            named.append((f"output {k}", o))
        else:
            made.others[f"output {k}"] = o
    for a in given:
        if a.base is None:
            continue
        made.tensors[f"input {a.spec.name}"] = facts(a.value, module)
        if not a.spec.of:
            made.tensors[f"memory of {a.spec.name}"] = facts(a.base, module)
        named.append((f"input {a.spec.name}", a.value))
        if a.value.is_leaf and a.value.grad is not None:
            made.tensors[f"gradient of {a.spec.name}"] = facts(a.value.grad, module)
    made.sharing = _sharing(named)
    return made


def _sharing(named: list[tuple[str, Any]]) -> list[str]:
    """Which tensors are the same object, and which share memory and how far apart."""
    found = []
    places = [
        (t.untyped_storage().data_ptr(), t.storage_offset()) if t.numel() else (None, 0)
        for _, t in named
    ]
    for i, (a, x) in enumerate(named):
        if not a.startswith("output"):
            continue
        for j, (b, y) in enumerate(named):
            if b.startswith("output") and j <= i:
                continue
            if x is y:
                found.append(f"{a} is {b}")
            elif places[i][0] is not None and places[i][0] == places[j][0]:
                found.append(f"{a} shares memory with {b} ({places[j][1] - places[i][1]:+d})")
    return found
