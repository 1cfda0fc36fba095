"""What the error of an allocator says beside its text: who has the memory, and what to do.

Nothing is kept for it while there is room: tensors are looked for among the objects of the process
when an allocation has failed.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lucerne._src import backends
from lucerne._src.base.device import HOST
from lucerne._src.base.process.free_memory import UNKNOWN, free_memory
from lucerne._src.base.process.source_location import is_users
from lucerne._src.base.raw import is_a
from lucerne._src.explain.memory import short, size
from lucerne._src.explain.sheet import aligned
from lucerne._src.tensor.autograd.pending import PART, PLACE
from lucerne._src.tensor.base import TensorBase
from lucerne.nn.modules.module import Module
from lucerne.optim.optimizer import Optimizer

_MOST_ROWS = 8
_AT_ONCE = 20_000
_PARAMETER, _GRADIENT, _STATE, _HISTORY, _OTHER = (
    "parameter", "gradient", "optimizer state", "with history", "other",
)  # fmt: skip


@dataclass
class LiveTensor:
    """The memory of one storage, and whose it is."""

    nbytes: int
    shape: str
    what: str = ""
    kind: str = _OTHER
    line: str = ""


def note(nbytes: int) -> str:
    """The note of an error: what was asked for, what is there, the largest tensors, three fixes."""
    found = live_tensors()
    stats = backends.get(HOST).memory.stats()
    free = free_memory()
    lines = [
        f"asked for {size(nbytes)}; tensors hold {size(stats['allocated_bytes'])}, "
        f"{size(stats['cached_bytes'])} are kept for reuse"
        + ("" if free == UNKNOWN else f", {size(free)} are free on this machine")
    ]
    groups: dict[tuple[str, str, str], list[int]] = {}
    for t in found:
        groups.setdefault((t.what or "-", t.shape, t.line or "-"), []).append(t.nbytes)
    largest = sorted(groups.items(), key=lambda x: -sum(x[1]))[:_MOST_ROWS]
    if largest:
        rows = [
            (what, shape if len(all_) == 1 else f"{len(all_)} x {shape}", line, size(sum(all_)))
            for (what, shape, line), all_ in largest
        ]
        lines += ["the largest tensors:"]
        lines += ["  " + x for x in aligned([("what", "tensor", "line", "bytes"), *rows], 3)]
    fixes = fixes_for(nbytes, found, free)
    lines += ["what to do, the likeliest first:"]
    lines += [f"  {k}. {text}" for k, text in enumerate(fixes, 1)]
    return "\n".join(lines)


# ---- who has it ---------------------------------------------------------------------------------


def live_tensors() -> list[LiveTensor]:
    """Every tensor on the host that can be found, each memory once."""
    found: dict[int, LiveTensor] = {}
    modules: list[Module] = []
    optimizers: list[Optimizer] = []
    for x in _objects():
        if is_a(x, TensorBase):  # (objects of other people may answer `__class__` with code)
            _add(found, x)
        elif is_a(x, Module):
            if "_modules" in x.__dict__:  # (one that is being made may have none yet)
                modules.append(x)
        elif is_a(x, Optimizer) and "state" in x.__dict__:
            optimizers.append(x)
    _name(found, modules, optimizers)
    return list(found.values())


def _objects() -> Iterator[Any]:
    """Tensors, modules and optimizers among what the collector knows, what that refers to, and the
    variables of what runs. (A process may have millions of other objects: only the type of each is
    looked at.)"""
    everything, kinds = gc.get_objects(), _with_subclasses(TensorBase, Module, Optimizer)
    for k in range(0, len(everything), _AT_ONCE):
        some = everything[k : k + _AT_ONCE]
        yield from [x for x in some if type(x) in kinds]
        yield from [x for x in gc.get_referents(*some) if type(x) in kinds]
    for _, value in _variables():
        yield value


def _with_subclasses(*kinds: type) -> set[type]:
    found: set[type] = set()
    left = list(kinds)
    while left:
        kind = left.pop()
        if kind not in found:
            found.add(kind)
            left += type.__subclasses__(kind)
    return found


def _variables() -> Iterator[tuple[str, Any]]:
    for top in list(sys._current_frames().values()):
        frame: Any = top
        while frame is not None:
            if is_users(frame.f_code):
                where = f"{short(frame.f_code.co_filename)}:{frame.f_lineno}"
                inside = frame.f_locals
                for name, value in list(inside.items()):
                    yield f"{name} at {where}", value
            frame = frame.f_back


def _memory(t: Any) -> Any:
    return t._storage.buffer


def _add(found: dict[int, LiveTensor], t: Any) -> None:
    if t._meta.device.type != HOST:
        return
    memory = _memory(t)
    if memory is None or getattr(memory, "address", None) == 0:  # (of a trace: there is none)
        return
    shape = f"{t._meta.dtype.name}{list(t._meta.shape)}"
    made = found.setdefault(id(memory), LiveTensor(t._storage.nbytes, shape))
    place = _place(t)
    if place is not None and not made.line:
        made.line = f"{short(place[0].co_filename)}:{place[1]}"
        made.kind = _HISTORY


def _place(t: Any) -> Any:
    """The line that computed a tensor, where its history knows it."""
    record = t._record
    if record is not None and len(record) == PART:
        record = record[0]
    if record is not None and len(record) > PLACE:
        return record[PLACE]
    auto = t._auto
    node = None if auto is None else auto.grad_fn
    return None if node is None else node.place


def _name(found: dict[int, LiveTensor], modules: list[Module], optimizers: list[Optimizer]) -> None:
    """Say of tensors whose they are."""
    for name, value in _variables():
        if is_a(value, TensorBase):
            _say(found, value, name, "")
    inner = {id(child) for m in modules for child in m._modules.values()}
    paths: dict[int, str] = {}
    for root in modules:
        if id(root) in inner:
            continue
        for path, p in root.named_parameters():
            paths[id(p)] = name = f"{type(root).__name__}.{path}"
            _say(found, p, name, _PARAMETER)
            if p.grad is not None:
                _say(found, p.grad, f"gradient of {name}", _GRADIENT)
        for path, b in root.named_buffers():
            _say(found, b, f"{type(root).__name__}.{path}", "")
    for optimizer in optimizers:
        for p, state in optimizer.state.items():
            for name, x in state.items() if isinstance(state, dict) else ():
                if is_a(x, TensorBase):
                    _say(found, x, f"{name} of {paths.get(id(p), 'a parameter')}", _STATE)


def _say(found: dict[int, LiveTensor], t: Any, what: str, kind: str) -> None:
    known = found.get(id(_memory(t)))
    if known is not None:
        known.what, known.kind = what, kind or known.kind


# ---- what to do ---------------------------------------------------------------------------------


def fixes_for(nbytes: int, found: list[LiveTensor], free: int) -> list[str]:
    """Three, the likeliest to help first."""
    held = dict.fromkeys((_PARAMETER, _GRADIENT, _STATE, _HISTORY, _OTHER), 0)
    for t in found:
        held[t.kind] += t.nbytes
    total = sum(held.values()) + 1
    trains = held[_GRADIENT] + held[_STATE] + held[_HISTORY] > 0
    weighted = [
        (
            2.0 if nbytes > total + max(free, 0) else 0.0,
            "this one tensor is larger than all there is: look at its shape (an outer product? an "
            "index that broadcasts?), or compute it in pieces",
        ),
        (
            held[_HISTORY] / total + 0.2 * trains,
            "keep less for the backward pass: a smaller batch with gradients summed over several, "
            "or torch.utils.checkpoint.checkpoint around the blocks of the model",
        ),
        (
            held[_STATE] / total,
            "keep less beside the parameters: an optimizer with less state (SGD, Adafactor), or "
            "bfloat16 parameters",
        ),
        (
            0.0 if held[_GRADIENT] or held[_STATE] else 0.4 * (held[_HISTORY] > 0),
            "call it under torch.no_grad() or torch.inference_mode() if nothing is trained: "
            "results then keep no history",
        ),
        (
            held[_OTHER] / total,
            "let go of what is not needed any more (`del`, and loss.item() in place of loss in "
            "lists): the table names the variables",
        ),
        (
            0.1,
            "ask torch.estimate_memory(model, batch, optimizer) what will be needed, by line",
        ),
        (0.05, "a smaller batch"),
    ]  # fmt: skip
    weighted.sort(key=lambda pair: -pair[0])
    return [text for _, text in weighted[:3]]
