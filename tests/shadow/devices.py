"""`python -m tests.shadow.devices`: faults planted in devices, found and named by shadow mode?

Two devices with kernels of their own: OpenCL (`examples/backend_opencl`) and a second reference
backend (the first one is what shadow mode holds kernels against).
A fault is a kernel of one op whose first element is wrong. `PROGRAM`: only the kernel that the
compiled program uses; `BOTH`: eager's as well, so that the two agree and both are wrong.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import lucerne as torch
from lucerne import backends, nn
from lucerne._src.backends.contract.tensor_view import elements
from lucerne._src.backends.reference.backend import ReferenceBackend
from lucerne._src.capture.shadow.shadowing import ShadowError

EXAMPLE = Path(__file__).parents[2] / "examples" / "backend_opencl"
PROGRAM, BOTH = "program", "both"
SHOWN = ("op:", "to blame:")
STAGES = {PROGRAM: ("kernel",), BOTH: ("eager kernel", "kernel")}


SECOND = "second"


class SecondReference(ReferenceBackend):
    """The reference backend under another name."""

    def devices(self) -> list[torch.device]:
        return [torch.device(SECOND)]


class Fault(NamedTuple):
    """The op whose kernel is wrong, in whose programs, and a function that uses it."""

    op: str
    where: str
    work: Callable[..., Any]


FAULTS = (
    Fault("exp", PROGRAM, lambda x: (x * 2).exp() + 1),
    Fault("tanh", PROGRAM, lambda x: torch.tanh(x) * x),
    Fault("sum", PROGRAM, lambda x: (x * x).sum(1)),
    Fault("amax", PROGRAM, lambda x: x.amax(0) - 1),
    Fault("batch_matmul", PROGRAM, lambda x: x @ x.t()),
    Fault("sqrt", BOTH, lambda x: x.abs().sqrt() + x),
    Fault("sin", BOTH, lambda x: torch.sin(x) - x),
    Fault("scan", BOTH, lambda x: x.cumsum(0) * 2),
    Fault("batch_matmul", BOTH, lambda x: nn.functional.relu(x @ x.t())),
    Fault("gather", PROGRAM, lambda x: x.gather(0, (x > 0).long()) * 3),
)


class Spoiling:
    """What a backend's `compile` is while a fault is planted: the kernels of an op give another
    first element."""

    def __init__(self, backend: Any, op: str) -> None:
        self.backend, self.op = backend, op
        self.inner = backend.compile
        self.count = 0

    def __call__(self, graph: Any) -> Any:
        execute = self.inner(graph)
        if not any(node.op.name == self.op for node in graph.nodes):
            return execute

        def wrong(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
            found = execute(inputs, outputs)
            target = outputs[0]
            first = elements(target).reshape(-1)[:1] + 1
            start = target._offset * target._meta.dtype.itemsize
            self.backend.write(target._storage.buffer, start, first.view("uint8"))
            self.count += 1
            return found

        return wrong


def named(device: str, backend: Any, fault: Fault, number: int) -> str:
    """What shadow mode says of a fault: the stage and the op; "": nothing."""
    torch.manual_seed(number)
    x = (torch.rand(4 + number, 4 + number) + 0.1).to(device)
    spoiling = Spoiling(backend, fault.op)
    if fault.where == PROGRAM:
        fault.work(x)  # eager has its kernels
    backend.compile = spoiling
    try:
        options = {"shadow": 1, "shadow_action": "raise"}
        torch.compile(fault.work, backend=device, options=options, fullgraph=True)(x)
    except ShadowError as error:
        return str(error)
    finally:
        del backend.compile
    return ""


def devices() -> dict[str, Any]:
    """A backend of its own for each device, registered under its name."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        found = {"opencl": importlib.import_module("lucerne_opencl").OpenCL()}
    except (ImportError, RuntimeError):  # (no OpenCL here)
        found = {}
    finally:
        sys.path.remove(str(EXAMPLE))
    return {**found, SECOND: SecondReference()}


def is_right(fault: Fault, text: str) -> bool:
    """Whether a finding names the kernel and the op."""
    blamed = any(f"to blame:   {stage}:" in text for stage in STAGES[fault.where])
    return blamed and f"op:         {fault.op}\n" in text


def main() -> int:
    torch.set_num_threads(1)
    missed = total = 0
    for device, backend in devices().items():
        backends.register(device, backend)
        for number, fault in enumerate(FAULTS):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                text = named(device, backend, fault, number)
            total, good = total + 1, is_right(fault, text)
            missed += not good
            said = [x.strip() for x in text.splitlines() if x.lstrip().startswith(SHOWN)]
            shown = "; ".join(" ".join(x.split()) for x in said) or "nothing was said"
            mark = "" if good else "<- "
            print(f"{device:<8} {fault.op:<13} {fault.where:<8} {mark}{shown}", flush=True)
    print(f"{total - missed} of {total} named")
    return missed


if __name__ == "__main__":
    sys.exit(main())
