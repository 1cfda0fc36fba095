"""Every op of the most needed tier on placed tensors: right, and beside torch's DTensor.

python -m tests.xla.placed_ops ours           # frozen cases (T0) with S(0), S(1), R, P on 4 devices
python -m tests.xla.placed_ops torchs         # the same calls by torch, 4 ranks in one process
python -m tests.xla.placed_ops ours --dtype float32 --placement P --op softmax --failures

Each tensor of a call is placed: cut along a dimension (whole if it has none such), whole, or as
terms, of which each device has every fourth element and nothing else. Right is what torch answered
without a mesh. Tensors that a case keeps on the host stay there.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import lucerne
from lucerne._src.base import dtype as dt
from lucerne._src.base.tree import tree_map
from lucerne._src.conformance import Case, Outcome, frozen_cases, run
from lucerne._src.conformance.run import check
from lucerne._src.tensor.interop import outside

COUNT = 4
PLACEMENTS = ("S(0)", "S(1)", "R", "P")


# ---- here ----------------------------------------------------------------------------------------


def placing(name: str) -> Callable[[Any], Any]:
    """What lays a tensor of the device out; others stay as they are."""
    from lucerne.distributed.device_mesh import init_device_mesh
    from lucerne.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("xla", (COUNT,))

    def place(x: Any) -> Any:
        if not isinstance(x, lucerne.Tensor) or x.device.type != "xla":
            return x
        if name == "P":
            number = lucerne.arange(x.numel(), device="xla").reshape(x.shape) % COUNT
            nothing = lucerne.full_like(x, -0.0 if x.dtype.is_floating_point else 0)
            terms = [lucerne.where(number == k, x, nothing) for k in range(COUNT)]
            return DTensor.from_local(terms, mesh, [Partial()])
        dim = int(name[2]) if name[0] == "S" else x.ndim
        return distribute_tensor(x, mesh, [Shard(dim) if dim < x.ndim else Replicate()])

    return place


def ours(name: str, wanted: Callable[[Case], bool]) -> list[Outcome]:
    cases = frozen_cases(lucerne, given=placing(name))
    return run([case for case in cases if wanted(case)], "xla")


# ---- torch ---------------------------------------------------------------------------------------


def torchs(name: str, wanted: Callable[[Case], bool]) -> list[Outcome]:
    """The same calls (without their gradients) by torch: ranks that it simulates in one process."""
    import torch
    from torch import distributed
    from torch.distributed._local_tensor import LocalTensorMode
    from torch.distributed.device_mesh import init_device_mesh

    if not distributed.is_initialized():
        distributed.init_process_group("fake", rank=0, world_size=COUNT)
    with LocalTensorMode(COUNT):
        mesh = init_device_mesh("cpu", (COUNT,))
        given = _torch_placing(name, mesh)
        cases = frozen_cases(torch, given=given)
        kept = [_answered_here(case) for case in cases if wanted(case) and case.part == "result"]
        found: dict[tuple[str, str], Outcome] = {}
        for case in kept:
            outcome = found.setdefault(
                (case.op, case.dtype), Outcome(case.op, case.tier, case.dtype)
            )
            problem = check(case, "cpu")
            outcome.total += 1
            outcome.passed += not problem
            outcome.first_failure = outcome.first_failure or problem
    return list(found.values())


def _torch_placing(name: str, mesh: Any) -> Callable[[Any], Any]:
    import torch
    from torch.distributed import tensor as dtensor
    from torch.distributed._local_tensor import LocalTensor

    def place(x: Any) -> Any:
        if isinstance(x, (dt.dtype, lucerne.memory_format)):
            return getattr(torch, str(x).removeprefix("torch."))
        if isinstance(x, lucerne.device):
            return torch.device("cpu")
        if not isinstance(x, lucerne.Tensor):
            return x
        made = _as_torch(x)
        if name == "P":
            local = LocalTensor({k: _term(made, k) for k in range(COUNT)})
            return dtensor.DTensor.from_local(local, mesh, [dtensor.Partial()])
        dim = int(name[2]) if name[0] == "S" else made.ndim
        placement = dtensor.Shard(dim) if dim < made.ndim else dtensor.Replicate()
        return dtensor.distribute_tensor(made, mesh, [placement])

    return place


def _term(x: Any, k: int) -> Any:
    """The k-th term: elements that no other has; the others are what adding does not change."""
    import torch

    number = torch.arange(x.numel()).reshape(x.shape) % COUNT
    nothing = torch.full_like(x, -0.0 if x.is_floating_point() else 0)
    return torch.where(number == k, x, nothing)


def _as_torch(x: Any) -> Any:
    import torch

    if x.dtype is lucerne.bfloat16:
        return torch.from_numpy(outside.values(x.view(lucerne.int16))).view(torch.bfloat16)
    return torch.from_numpy(np.array(outside.values(x)))


def _answered_here(case: Case) -> Case:
    """A case whose answer is a tensor of ours, as the comparison takes it."""
    import dataclasses

    import torch
    from torch.distributed.tensor import DTensor

    def back(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        t = t.full_tensor() if isinstance(t, DTensor) else t
        t = t.reconcile() if hasattr(t, "reconcile") else t
        t = t.detach().resolve_conj().resolve_neg().contiguous()
        if t.dtype == torch.bfloat16:
            return lucerne.from_numpy(t.view(torch.int16).numpy()).view(lucerne.bfloat16)
        return lucerne.from_numpy(t.numpy())

    return dataclasses.replace(case, run=lambda device: tree_map(back, case.run(device)))


# ---- the table -----------------------------------------------------------------------------------


def _share(outcomes: list[Outcome]) -> str:
    good = sum(o.ok for o in outcomes)
    return f"{good} of {len(outcomes)} ({100 * good / max(len(outcomes), 1):.1f} %)"


def _rows(options: argparse.Namespace) -> Iterator[tuple[str, list[Outcome]]]:
    def wanted(case: Case) -> bool:
        return (
            case.tier == "T0"
            and (not options.dtype or case.dtype in options.dtype)
            and (not options.op or case.op in options.op)
        )

    score = {"ours": ours, "torchs": torchs}[options.whose]
    for name in options.placement or PLACEMENTS:
        yield name, score(name, wanted)


def main() -> int:
    made = argparse.ArgumentParser(prog="python -m tests.xla.placed_ops")
    made.add_argument("whose", choices=("ours", "torchs"))
    made.add_argument("--dtype", action="append")
    made.add_argument("--op", action="append")
    made.add_argument("--placement", action="append", choices=PLACEMENTS)
    made.add_argument("--failures", action="store_true", help="print each")
    options = made.parse_args()
    every: list[Outcome] = []
    for name, found in _rows(options):
        print(f"{options.whose} {name:<5} {_share(found)} (op, dtype) pairs are equal", flush=True)
        wrong = [o for o in found if not o.ok]
        if options.failures:
            for o in wrong:
                print(f"    {o.op} {o.dtype}: {o.passed}/{o.total}: {o.first_failure}")
        elif wrong:
            common = Counter(o.op for o in wrong).most_common(12)
            print("    wrong or refused:", ", ".join(op for op, _ in common), flush=True)
        every += found
    print(f"{options.whose} all   {_share(every)}")
    return 0 if sum(o.ok for o in every) >= 0.99 * len(every) else 1


if __name__ == "__main__":
    os.environ.setdefault("XLA_FLAGS", f"--xla_force_host_platform_device_count={COUNT}")
    raise SystemExit(main())
