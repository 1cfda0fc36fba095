"""`estimate_memory`: how much memory a training step takes at most, without running it.

Two steps of training are made as a dry run (see `tensor/eager/dry_run.py`) of copies without bytes:
plans, autograd and compiled programs are the real ones, so what is alive when is what they keep.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lucerne._src import backends
from lucerne._src.base.config import config
from lucerne._src.base.process.free_memory import UNKNOWN, free_memory
from lucerne._src.base.process.source_location import Origin, naming_modules, owner_of
from lucerne._src.explain.memory import line_of, maker_of, memory_of, short, size
from lucerne._src.explain.sheet import Sheet, call_of
from lucerne._src.ir.program import RESULT, Program
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.base import make_tensor
from lucerne._src.tensor.eager.dry_run import SMALL, DryExecution, MemoryTaken, on_a_device
from lucerne._src.tensor.random.generator import default_generator
from lucerne.nn.modules.module import Module
from lucerne.nn.parameter import Parameter
from lucerne.optim.optimizer import Optimizer
from lucerne.utils import _pytree as pytree

PARAMETERS, BUFFERS, INPUTS = "parameters", "buffers", "inputs"
GRADIENTS, OPTIMIZER, ACTIVATIONS, TEMPORARY = (
    "gradients", "optimizer state", "activations", "temporary",
)  # fmt: skip
KINDS = (PARAMETERS, BUFFERS, GRADIENTS, OPTIMIZER, ACTIVATIONS, INPUTS, TEMPORARY)
_FORWARD, _BACKWARD, _STEP = "forward pass", "backward pass", "optimizer step"
_MOST_ROWS = 20
_STEPS = 2
"""The first step makes the optimizer's state, the second has it from the beginning."""


@dataclass
class Held:
    """Bytes at the moment of the peak, of one line, module and kind."""

    where: str
    module: str
    kind: str
    nbytes: int
    count: int


class MemoryEstimate(Sheet):
    """What is in memory when it is the most.

    >>> import lucerne as torch
    >>> model = torch.nn.Linear(1000, 1000)
    >>> found = torch.estimate_memory(model, torch.ones(10, 1000), torch.optim.Adam)
    >>> found.by_kind["parameters"] <= found.by_kind["optimizer state"] < found.peak
    True
    """

    heads = ("line", "module", "kind", "tensors", "bytes", "share")

    def __init__(self, name: str, held: list[Held], phase: str, free: int) -> None:
        self.name, self.held, self.phase, self.free = name, held, phase, free
        self.by_kind = dict.fromkeys(KINDS, 0)
        for h in held:
            self.by_kind[h.kind] += h.nbytes
        self.peak = sum(self.by_kind.values())
        """Bytes, as the allocator takes them (sizes are rounded up)."""

    @property
    def fits(self) -> bool | None:
        """Whether so much memory is free now; None: the system does not say how much is."""
        return None if self.free == UNKNOWN else self.peak <= self.free

    def title(self) -> str:
        return f"{self.name}: memory"

    def rows(self) -> list[tuple[str, ...]]:
        shown, rest = self.held[:_MOST_ROWS], self.held[_MOST_ROWS:]
        if rest:
            nbytes, count = sum(h.nbytes for h in rest), sum(h.count for h in rest)
            shown = [*shown, Held(f"({len(rest)} more)", "", "", nbytes, count)]
        return [
            (
                h.where, h.module or "-", h.kind or "-", str(h.count), size(h.nbytes),
                f"{100 * h.nbytes / max(self.peak, 1):.0f} %",
            )
            for h in shown
        ]  # fmt: skip

    def totals(self) -> str:
        kinds = ", ".join(f"{kind} {size(n)}" for kind, n in self.by_kind.items() if n)
        fits = {None: "", True: ": it fits", False: ": IT DOES NOT FIT"}[self.fits]
        free = "" if self.free == UNKNOWN else f"; {size(self.free)} are free now{fits}"
        return f"peak {size(self.peak)} in the {self.phase}{free}\nof these: {kinds}"


def estimate_memory(
    model: Module,
    batch: Any = (),
    optimizer: Any = None,
    loss: Callable[[Any], Any] | None = None,
    *,
    train: bool = True,
    **named: Any,
) -> MemoryEstimate:
    """How much memory a step of training takes at most, and what for; nothing is computed.

    `model`: as it will be called, also compiled (`torch.compile(model)`) or with checkpoints in it,
    and also on the meta device, if it is too large to be made. `batch`: its argument, or a tuple of
    them, or a dict of named ones; `named`: more of those. `optimizer`: one over its parameters, or
    what makes one of them (`torch.optim.AdamW`). `loss`: the scalar of what the model gives (usual:
    its `.loss`, or the sum of its tensors). `train=False`: one call without gradients instead.

    Model, optimizer and gradients stay as they are. What looks at values of large tensors can't be
    estimated and raises. Copies of weights that products of inference keep packed are not counted.

    >>> import lucerne as torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(1000, 1000), torch.nn.ReLU())
    >>> found = torch.estimate_memory(model, torch.ones(64, 1000), torch.optim.SGD)
    >>> 8e6 < found.peak < 12e6
    True
    """
    args, named = call_of(batch, named)
    dry = DryExecution()
    generator: Any = default_generator
    before = config.payoff_calls, generator.get_state()
    try:
        config.payoff_calls = 0  # (nothing can be timed)
        with dry:
            rehearsal = _Rehearsal(dry, model, args, named, optimizer)
            with naming_modules(rehearsal.names):
                for _ in range(_STEPS if train else 1):
                    (rehearsal.step if train else rehearsal.call)(loss)
    finally:
        config.payoff_calls = before[0]
        generator.set_state(before[1])
    held, phase = _at_peak(dry.events, rehearsal)
    return MemoryEstimate(type(model).__name__, held, phase, free_memory())


class _Rehearsal:
    """A model, a batch and an optimizer without bytes, and a step of training."""

    def __init__(
        self,
        dry: DryExecution,
        model: Module,
        args: tuple[Any, ...],
        named: dict[str, Any],
        optimizer: Any,
    ) -> None:
        self.dry = dry
        self.memo: dict[int, Any] = {}
        self._storages: dict[int, Any] = {}
        dry.phase = TEMPORARY
        for p in model.parameters():
            self._stand_in(p, PARAMETERS)
        for b in model.buffers():
            self._stand_in(b, BUFFERS)
        if isinstance(optimizer, Optimizer):
            for state in optimizer.state.values():
                for x in state.values() if isinstance(state, dict) else ():
                    if isinstance(x, lu.Tensor):
                        self._stand_in(x, OPTIMIZER)
        self.model = copy.deepcopy(model, self.memo)
        self.names = {id(m): path or "(model)" for path, m in self.model.named_modules()}
        self.params = [p for p in self.model.parameters() if p.requires_grad]
        self.args, self.named = pytree.tree_map(self._given, (args, named))
        made = optimizer is None or isinstance(optimizer, Optimizer)
        self.optimizer = (
            copy.deepcopy(optimizer, self.memo) if made else optimizer(self.model.parameters())
        )
        self.activations: list[MemoryTaken] = []

    def _stand_in(self, t: Any, kind: str) -> Any:
        """What takes the place of a tensor."""
        meta, storage = on_a_device(t._meta), t._storage
        at_hand = t._meta.device.type != backends.META
        small = at_hand and storage.nbytes <= SMALL and kind != PARAMETERS
        if small and not (kind == INPUTS and t.is_floating_point()):
            return t  # its values may matter (a copy of it is made)
        key = id(storage if storage.buffer is None else storage.buffer)
        if key not in self._storages:
            self._storages[key] = self.dry.storage(storage.nbytes, meta.device, kind), t
        made = make_tensor(self._storages[key][0], t._offset, meta)
        if isinstance(t, Parameter):
            made = Parameter(made, t.requires_grad)
            made.__class__ = type(t)
        elif t._needs_grad:
            made.requires_grad_()
        self.memo[id(t)] = made
        return made

    def _given(self, x: Any) -> Any:
        return self._stand_in(x, INPUTS) if isinstance(x, lu.Tensor) else x

    def call(self, _: Any) -> None:
        """One call without gradients."""
        self.dry.phase = _FORWARD
        self.model.eval()
        with lu.no_grad():
            self.model(*self.args, **self.named)

    def step(self, loss: Callable[[Any], Any] | None) -> None:
        """One step of training."""
        dry, count = self.dry, len(self.dry.events)
        if self.optimizer is not None:
            self.optimizer.zero_grad()
        else:
            for p in self.params:
                p.grad = None
        dry.phase = _FORWARD
        value = _loss_of(self.model(*self.args, **self.named), loss)
        alive = {id(room) for room in dry.rooms.values()}
        made = [room for sign, room in dry.events[count:] if sign > 0 and id(room) in alive]
        self.activations += made
        dry.phase = _BACKWARD
        value.backward()
        for p in self.params:
            if p.grad is not None:
                room = dry.rooms.get(p.grad._storage.buffer)
                if room is not None:
                    room.kind = GRADIENTS
        if self.optimizer is None:
            return
        dry.phase = _STEP
        count = len(dry.events)
        self.optimizer.step()
        alive = {id(room) for room in dry.rooms.values()}
        for sign, room in dry.events[count:]:
            if sign > 0 and id(room) in alive and room.kind == _STEP:
                room.kind = OPTIMIZER


def _loss_of(output: Any, loss: Callable[[Any], Any] | None) -> Any:
    if loss is not None:
        return loss(output)
    found = getattr(output, "loss", None)
    if isinstance(found, lu.Tensor):
        return found
    tensors = [t for t in pytree.tree_leaves(output) if isinstance(t, lu.Tensor) and t._needs_grad]
    if not tensors:
        raise ValueError(
            "estimate_memory: the model gives no tensor with a gradient; give `loss`, which makes "
            "the scalar that backward() starts from, or train=False"
        )
    total = tensors[0].sum()
    for t in tensors[1:]:
        total = total + t.sum()
    return total


# ---- the moment of the peak ---------------------------------------------------------------------


def _at_peak(
    events: list[tuple[int, MemoryTaken]], rehearsal: _Rehearsal
) -> tuple[list[Held], str]:
    now = most = at = 0
    phase_at, phase = _FORWARD, _FORWARD
    for k, (sign, room) in enumerate(events):
        if sign > 0 and room.kind in (_FORWARD, _BACKWARD, _STEP, GRADIENTS, OPTIMIZER):
            phase = _PHASES.get(room.kind, room.kind)
        now += sign * room.nbytes
        reached = now if sign else now + room.nbytes
        if sign >= 0 and reached > most:
            most, at = reached, k
            phase_at = room.kind if room.kind in (_FORWARD, _BACKWARD, _STEP) else phase
    alive: dict[int, MemoryTaken] = {}
    for sign, room in events[: at + 1]:
        if sign > 0:
            alive[id(room)] = room
        elif sign < 0:
            alive.pop(id(room), None)
    rooms = list(alive.values())
    if events and events[at][0] == 0:
        rooms.append(events[at][1])
    kept = {id(room) for room in rehearsal.activations}
    return _grouped(rooms, kept), phase_at


_PHASES = {GRADIENTS: _BACKWARD, OPTIMIZER: _STEP}


def _grouped(rooms: list[MemoryTaken], kept: set[int]) -> list[Held]:
    found: dict[tuple[str, str, str], Held] = {}
    for room in rooms:
        kind = room.kind
        if kind in (_FORWARD, _BACKWARD, _STEP):
            kind = ACTIVATIONS if id(room) in kept else TEMPORARY
        for where, module, nbytes in _parts(room, kind):
            key = where, module, kind
            held = found.setdefault(key, Held(*key, 0, 0))
            held.nbytes += nbytes
            held.count += 1
    return sorted(found.values(), key=lambda h: -h.nbytes)


def _parts(room: MemoryTaken, kind: str) -> list[tuple[str, str, int]]:
    """(line, module, bytes) of a room; what a program works in is of several lines."""
    program = room.program
    if kind not in (ACTIVATIONS, TEMPORARY) or not isinstance(program, Program):
        return [(_where(room, kind), _module_of(room), room.nbytes)]
    if room.result >= 0:
        origin = _origin_of_result(program, room.result)
        return [
            (_where(room, kind), "", room.nbytes)
            if origin is None
            else (line_of(origin), origin.module, room.nbytes)
        ]
    owners = memory_of(program).owners
    rest = room.nbytes - sum(o.nbytes for o in owners)
    found = [(o.label, o.module, o.nbytes) for o in owners]
    return [*found, (_where(room, kind), "", rest)] if rest > 0 else found


def _origin_of_result(program: Program, number: int) -> Origin | None:
    """The line that makes a result of a program."""
    for step in reversed(program.steps):
        for place in step.outputs:
            if place.kind == RESULT and place.index == number:
                return maker_of(step, place)
    return None


def _module_of(room: MemoryTaken) -> str:
    return "" if room.place is None else owner_of(room.place)


def _where(room: MemoryTaken, kind: str) -> str:
    if kind in (PARAMETERS, BUFFERS, INPUTS, GRADIENTS, OPTIMIZER):
        return f"({kind})"
    line = "-" if room.place is None else f"{short(room.place[0].co_filename)}:{room.place[1]}"
    after = f" ({room.label})" if room.label else ""
    return f"{line}{after}"
