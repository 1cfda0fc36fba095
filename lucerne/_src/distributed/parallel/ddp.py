"""`DistributedDataParallel`: one model, trained by several processes, each on its data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lucerne._src.compiler import disable
from lucerne._src.distributed.parallel.reducer import MEGABYTE, GradBucket, Reducer
from lucerne._src.distributed.processes.collectives import broadcast
from lucerne._src.distributed.processes.groups import member
from lucerne._src.distributed.processes.points import all_gather_object
from lucerne._src.futures import Future
from lucerne._src.tensor import api as lu
from lucerne.nn.modules.module import Module


class DistributedDataParallel(Module):
    """A module whose gradients are the mean over all ranks after each backward pass.

    Parameters and buffers begin as those of rank 0. Gradients go out in buckets of about
    `bucket_cap_mb` while the rest of the backward pass is computed. All ranks end with the same
    bits.

    >>> import lucerne as torch, lucerne.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    >>> model(torch.ones(3, 2)).sum().backward()
    >>> model.module.bias.grad
    tensor([3.])
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        module: Any,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
    ) -> None:
        super().__init__()
        _refuse(
            dim=dim != 0,
            check_reduction=check_reduction,
            delay_all_reduce_named_params=delay_all_reduce_named_params is not None,
            param_to_hook_all_reduce=param_to_hook_all_reduce is not None,
            mixed_precision=mixed_precision is not None,
            device_mesh=device_mesh is not None,
            skip_all_reduce_unused_params=skip_all_reduce_unused_params,
        )
        places = [*(device_ids or ()), *([] if output_device is None else [output_device])]
        if any(str(place).partition(":")[0] != "cpu" for place in places):
            raise ValueError(
                f"DistributedDataParallel device_ids={device_ids}, output_device={output_device}: "
                "these are for modules on one GPU; for a module on the cpu leave them out"
            )
        group = member(process_group)
        if group is None:
            raise ValueError("DistributedDataParallel: this rank is not in the process group")
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self.module = module
        self.process_group = group
        self.device_ids, self.output_device = None, None
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
        self.require_backward_grad_sync = True
        self._options = (int((bucket_cap_mb or 25) * MEGABYTE), gradient_as_bucket_view)
        named = [(n, p) for n, p in module.named_parameters() if n not in ignored]
        self._trained = [(n, p) for n, p in named if p.requires_grad]
        if not self._trained:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter "
                "that requires a gradient."
            )
        self._shared = [b for n, b in module.named_buffers() if n not in ignored and b.numel()]
        if init_sync:
            self._agree(named)
            self._send([p.detach() for _, p in named] + self._shared)
        self._make_reducer()

    def _make_reducer(self) -> None:
        names, parameters = zip(*self._trained, strict=True)
        most, views = self._options
        self.reducer = Reducer(
            names, parameters, self.process_group, most, views,
            self.find_unused_parameters, self.static_graph,
        )  # fmt: skip

    def _agree(self, named: Sequence[tuple[str, Any]]) -> None:
        """The same parameters on all ranks, or an error that names the first that is not."""
        mine = [f"{n} {p.dtype} {tuple(p.shape)} {p.requires_grad}" for n, p in named]
        every: list[Any] = [None] * self.process_group.size()
        all_gather_object(every, mine, self.process_group)
        for rank, theirs in enumerate(every):
            if theirs != mine:
                pairs = zip([*mine, "nothing"], [*theirs, "nothing"], strict=False)
                ours, other = next(pair for pair in pairs if pair[0] != pair[1])
                raise RuntimeError(
                    "DDP expects same model across all ranks, but this rank has the parameter "
                    f"{ours} where rank {rank} has {other}"
                )

    def _send(self, tensors: Sequence[Any]) -> None:
        """The values of rank 0 for all ranks."""
        if self.process_group.size() == 1:
            return
        kinds: dict[Any, list[Any]] = {}
        for tensor in tensors:
            kinds.setdefault(tensor.dtype, []).append(tensor)
        with lu.no_grad():
            for parts in kinds.values():
                flat = lu.cat([t.reshape(-1) for t in parts])
                broadcast(flat, group_src=0, group=self.process_group)
                for tensor, part in zip(parts, flat.split([t.numel() for t in parts]), strict=True):
                    tensor.copy_(part.view(tensor.shape))

    # -- passes ----------------------------------------------------------------------------------

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's result."""
        self._before()
        outputs = self.module(*inputs, **kwargs)
        self._after(outputs)
        return outputs

    @disable
    def _before(self) -> None:
        syncs = lu.is_grad_enabled() and self.require_backward_grad_sync
        if syncs:
            self.reducer.check_finished()
        if self.broadcast_buffers and self._shared and (syncs or not lu.is_grad_enabled()):
            self._send(self._shared)

    @disable
    def _after(self, outputs: Any) -> None:
        if lu.is_grad_enabled() and self.require_backward_grad_sync:
            self.reducer.prepare(outputs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients add up on each rank alone, until a pass outside."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(
        self, state: object, hook: Callable[[object, GradBucket], Future[Any]]
    ) -> None:
        """Let `hook(state, bucket)` make the mean of a bucket; it gives a future of the tensor."""
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self.reducer.hook is not None:
            raise RuntimeError("register_comm_hook can only be called once.")
        self.reducer.hook, self.reducer.hook_state = hook, state

    def _set_static_graph(self) -> None:
        self.static_graph = True
        self.reducer.static = self.reducer.find_unused = True

    @contextmanager
    def join(
        self, divide_by_initial_world_size: bool = True, enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Iterator[None]:  # fmt: skip
        """Refuses, unless `enable=False`: ranks with fewer batches are not filled in for."""
        if enable:
            raise NotImplementedError(
                f"DistributedDataParallel.join({divide_by_initial_world_size}, "
                f"throw_on_early_termination={throw_on_early_termination}): give all ranks the "
                "same number of batches, for example with DistributedSampler"
            )
        yield

    def train(self, mode: bool = True) -> DistributedDataParallel:
        super().train(mode)
        self.module.train(mode)
        return self

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "a DistributedDataParallel is tied to its processes and can't be copied or pickled: "
            "take its .module, or save its state_dict()"
        )


def _refuse(**given: bool) -> None:
    wrong = [name for name, is_given in given.items() if is_given]
    if wrong:
        raise NotImplementedError(
            f"DistributedDataParallel({', '.join(wrong)}): not part of this version; leave it out"
        )
