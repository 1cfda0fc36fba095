"""`ZeroRedundancyOptimizer`: each rank keeps the optimizer's state of its share of parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.distributed.processes.collectives import broadcast
from lucerne._src.distributed.processes.groups import member
from lucerne._src.distributed.processes.points import all_gather_object
from lucerne._src.tensor import api as lu
from lucerne.optim.optimizer import Optimizer


class ZeroRedundancyOptimizer(Optimizer):
    """An optimizer in parts: a rank steps its share, and gives the new values to the others.

    >>> import lucerne as torch, lucerne.distributed as dist
    >>> from lucerne.distributed.optim import ZeroRedundancyOptimizer
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> p = torch.nn.Parameter(torch.ones(2))
    >>> optimizer = ZeroRedundancyOptimizer([p], optimizer_class=torch.optim.SGD, lr=0.5)
    >>> p.grad = torch.ones(2)
    >>> optimizer.step()
    >>> p
    Parameter containing:
    tensor([0.5000, 0.5000], requires_grad=True)
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        params: Any,
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if parameters_as_bucket_view or overlap_with_ddp:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer: parameters_as_bucket_view and overlap_with_ddp are not "
                "part of this version; leave them out"
            )
        group = member(process_group)
        if group is None:
            raise ValueError("ZeroRedundancyOptimizer: this rank is not in the process group")
        self.process_group = group
        self.optim: Any = None
        super().__init__(params, defaults)
        self._owner = self._share()
        mine = [
            {**given, "params": [p for p in given["params"] if self._owner[id(p)] == group.rank()]}
            for given in self.param_groups
        ]
        kept = [row for row in mine if row["params"]]
        self._rows = [k for k, row in enumerate(mine) if row["params"]]
        self.optim = optimizer_class(kept, **defaults) if kept else None
        self._gathered: list[Any] | None = None

    def _share(self) -> dict[int, int]:
        """Whose each parameter is: the largest first, to whom has least."""
        load = [0] * self.process_group.size()
        found = {}
        every = [p for given in self.param_groups for p in given["params"]]
        for p in sorted(every, key=lambda p: -p.numel()):
            rank = min(range(len(load)), key=lambda k: (load[k], k))
            load[rank] += p.numel()
            found[id(p)] = rank
        return found

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step the share of this rank, then take the values of the others."""
        loss = None if closure is None else closure()
        if self.optim is not None:
            for row, inner in zip(self._rows, self.optim.param_groups, strict=True):
                given = self.param_groups[row]
                inner.update({name: value for name, value in given.items() if name != "params"})
            self.optim.step()
        with lu.no_grad():
            for given in self.param_groups:
                for p in given["params"]:
                    broadcast(p.detach(), group_src=self._owner[id(p)], group=self.process_group)
        return loss

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring the states of all ranks to rank `to`, which may then call `state_dict`."""
        mine = None if self.optim is None else self.optim.state_dict()
        found: list[Any] = [None] * self.process_group.size()
        all_gather_object(found, mine, self.process_group)
        self._gathered = found if self.process_group.rank() == to else None

    def state_dict(self) -> dict[str, Any]:
        """The states of all ranks, after `consolidate_state_dict` on the rank it was brought to."""
        if self._gathered is None:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                f"`consolidate_state_dict(to={self.process_group.rank()})` on all ranks beforehand "
                "if you meant to save the global state."
            )
        return {"zero_redundancy": self._gathered}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the share of this rank; the number of ranks must be the one it was saved with."""
        parts = state_dict["zero_redundancy"]
        if len(parts) != self.process_group.size():
            raise ValueError(
                f"the state is of {len(parts)} ranks, and there are {self.process_group.size()}"
            )
        mine = parts[self.process_group.rank()]
        if self.optim is not None and mine is not None:
            self.optim.load_state_dict(mine)
