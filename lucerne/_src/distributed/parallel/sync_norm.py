"""Batch norm whose statistics are those of all ranks, and sums over ranks with a derivative."""

from __future__ import annotations

from typing import Any

from lucerne._src.base.process.late_bindings import LateBindings
from lucerne._src.compiler import disable
from lucerne._src.distributed.processes.collectives import all_reduce
from lucerne._src.distributed.processes.groups import member
from lucerne._src.distributed.processes.points import all_gather_object
from lucerne._src.distributed.processes.world import Current, is_initialized
from lucerne._src.tensor import api as lu
from lucerne.autograd import Function


class SummedOverRanks(Function):
    """The sum over all ranks; its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: Any, group: Any) -> Any:
        ctx.group = group
        made = x.detach().clone()
        all_reduce(made, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        made = grad.contiguous().clone()
        all_reduce(made, group=ctx.group)
        return made, None


@disable
def sync_batch_norm(module: Any, x: Any) -> Any:
    """What a `SyncBatchNorm` gives in training; None: this process is alone."""
    if not is_initialized():
        return None
    group = member(module.process_group)
    if group is None or group.size() == 1:
        return None
    dims = [d for d in range(x.dim()) if d != 1]
    shape = [1, -1] + [1] * (x.dim() - 2)
    wide = x.to(lu.promote_types(x.dtype, lu.float32))
    local = lu.cat([wide.sum(dims), wide.new_full((1,), x.numel() / x.shape[1])])
    total = SummedOverRanks.apply(local, group)
    count = total[-1].detach()
    mean = total[:-1] / count
    centred = wide - mean.view(shape)
    variance = SummedOverRanks.apply((centred * centred).sum(dims), group) / count
    if module.track_running_stats and module.running_mean is not None:
        _remember(module, mean.detach(), variance.detach(), float(count))
    made = centred * lu.rsqrt(variance + module.eps).view(shape)
    if module.weight is not None:
        made = made * module.weight.view(shape)
    if module.bias is not None:
        made = made + module.bias.view(shape)
    return made.to(x.dtype)


def _remember(module: Any, mean: Any, variance: Any, count: float) -> None:
    if module.num_batches_tracked is not None:
        module.num_batches_tracked.add_(1)
    factor = module.momentum
    if factor is None:
        factor = 1.0 / float(module.num_batches_tracked)
    unbiased = variance * (count / max(count - 1.0, 1.0))
    with lu.no_grad():
        for held, new in ((module.running_mean, mean), (module.running_var, unbiased)):
            held.mul_(1.0 - factor).add_(new.to(held.dtype), alpha=factor)


def _place() -> tuple[int, int] | None:
    found = Current.world
    return None if found is None else (found.rank, found.size)


def _gather(mine: Any) -> list[Any]:
    place = _place()
    found: list[Any] = [None] * (1 if place is None else place[1])
    all_gather_object(found, mine)
    return found


def bind() -> None:
    """Let modules and samplers, which are loaded without processes, know of them."""
    LateBindings.sync_norm = staticmethod(sync_batch_norm)
    LateBindings.process_place = staticmethod(_place)
    LateBindings.process_gather = staticmethod(_gather)
