"""A dry run: calls are decided as ever (plans, autograd, programs), and nothing is computed.

Results are tensors over memory that does not exist, whose beginning and end is noted. What little
can be computed without them (positions, counters of steps) is computed: code may look at it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn

from lucerne._src import backends
from lucerne._src.base.device import HOST
from lucerne._src.base.device import device as Device
from lucerne._src.base.process.source_location import Place, describe, user_place
from lucerne._src.ir import dispatch
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.tensor.base import TensorBase, make_tensor
from lucerne._src.tensor.storage import Storage

SMALL = 1 << 12
"""Results of at most so many bytes are computed where all they are computed of is there."""


class NoValuesError(RuntimeError):
    """Something looked at numbers, which do not exist in a dry run."""

    is_for_caller = True


class Unreal:
    """Stands where a storage has its memory."""

    __slots__ = ("__weakref__",)
    address = 0

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise NoValuesError(
            f"estimate_memory: values are looked at ({describe(user_place())}): item(), tolist(), "
            "`if` on a tensor, or a result whose shape depends on the data. Nothing is computed "
            "here, so there are none. Estimate without that line, or give what it finds as an "
            "argument (small tensors of a batch keep their values)"
        )


class MemoryTaken:
    """The memory of one storage: how large, for what, and where it was asked for."""

    __slots__ = ("kind", "label", "nbytes", "place", "program", "result")

    def __init__(self, nbytes: int, kind: str, place: Place | None, label: str = "") -> None:
        self.nbytes, self.kind, self.place, self.label = nbytes, kind, place, label
        self.program: Any = None
        """The compiled program that takes it, to work in, or as its result of this number."""
        self.result = -1


class DryExecution:
    """While entered (in its thread): no kernel runs, and `events` tells who takes what memory."""

    current: ClassVar[DryExecution | None] = None

    def __init__(self) -> None:
        self.events: list[tuple[int, MemoryTaken]] = []
        """(1: memory is taken, -1: given back, 0: taken for one kernel only, whose room it is)."""
        self.phase = ""
        self.rooms: weakref.WeakKeyDictionary[Any, MemoryTaken] = weakref.WeakKeyDictionary()
        """By what stands for memory."""
        self._ends: set[Any] = set()
        self._thread = threading.get_ident()
        self._sizes: dict[str, Any] = {}

    def __enter__(self) -> DryExecution:
        self._before, DryExecution.current = DryExecution.current, self
        dispatch.state.add_special(1)  # machine code would not ask
        return self

    def __exit__(self, *_: object) -> None:
        dispatch.state.add_special(-1)
        DryExecution.current = self._before

    # ---- memory --------------------------------------------------------------------------------

    def _taken(self, nbytes: int, device: Device) -> int:
        """What the allocator of a device takes for so many bytes."""
        if device.type not in self._sizes:
            memory = backends.get(device.type).memory
            self._sizes[device.type] = None if memory is None else memory.taken
        rounded = self._sizes[device.type]
        return nbytes if rounded is None else int(rounded(nbytes))

    def hold(self, buffer: Any, nbytes: int, device: Device, kind: str = "") -> None:
        """Memory is taken, until `buffer` goes."""
        if buffer in self.rooms:
            return
        room = MemoryTaken(self._taken(nbytes, device), kind or self.phase, user_place())
        self.rooms[buffer] = room
        self.events.append((1, room))
        events, ends = self.events, self._ends

        def gone(ref: Any) -> None:
            ends.discard(ref)
            events.append((-1, room))

        ends.add(weakref.ref(buffer, gone))

    def for_now(self, nbytes: int, device: Device, label: str) -> None:
        """Memory that a kernel or a program takes while it runs."""
        if nbytes:
            room = MemoryTaken(self._taken(nbytes, device), self.phase, user_place(), label)
            self.events.append((0, room))

    def storage(self, nbytes: int, device: Device, kind: str = "") -> Storage:
        """A storage whose bytes are nowhere."""
        made = Storage(None, nbytes, device)
        made.buffer = Unreal()
        self.hold(made.buffer, nbytes, device, kind)
        return made

    def tensor(self, meta: TensorMeta, nbytes: int, kind: str = "") -> Any:
        """A tensor over memory of its own that does not exist."""
        return make_tensor(self.storage(nbytes, meta.device, kind), 0, meta)

    # ---- what the eager path and programs ask ---------------------------------------------------

    def _is_elsewhere(self) -> bool:
        return threading.get_ident() != self._thread

    def results(self, plan: Any, args: Sequence[Any]) -> list[Any] | None:
        """What a plan of a kernel gives; None: it is to run."""
        if self._is_elsewhere() or plan.device.type == backends.META:
            return None
        if sum(n for _, n in plan.sizes) <= SMALL and not any(map(is_unreal, _tensors(args))):
            return None
        self._workspace(plan)
        return [self.tensor(meta, nbytes) for meta, nbytes in plan.sizes]

    def writes(self, plan: Any, args: Sequence[Any], outs: Sequence[Any]) -> bool:
        """Whether a kernel that writes over tensors has been taken care of."""
        if self._is_elsewhere() or not any(map(is_unreal, (*_tensors(args), *outs))):
            return False
        self._workspace(plan)
        return True

    def _workspace(self, plan: Any) -> None:
        self.for_now(getattr(plan.execute, "workspace", 0), plan.device, plan.op.name)

    def reads(self, args: Sequence[Any]) -> None:
        """A kernel whose results depend on values is about to run."""
        if not self._is_elsewhere():
            for t in _tensors(args):
                if is_unreal(t):
                    t._storage.buffer.__array__()

    def program(self, runner: Any, metas: Sequence[TensorMeta]) -> list[Any]:
        """What a compiled program gives."""
        program = getattr(runner, "program", None)
        made = [self.tensor(m, m.span * m.dtype.itemsize) for m in metas]
        for k, t in enumerate(made):
            room = self.rooms[t._storage.buffer]
            room.program, room.result = program, k
        device = metas[0].device if metas else Device(HOST)
        self.for_now(runner.scratch_bytes, device, "compiled program")
        if runner.scratch_bytes:
            self.events[-1][1].program = program
        return made


def is_unreal(t: Any) -> bool:
    """Whether a tensor is of a dry run, without values."""
    return type(t._storage.buffer) is Unreal


def on_a_device(meta: TensorMeta) -> TensorMeta:
    """A meta tensor's stand-in lies on the host; any other one where it is."""
    if meta.device.type != backends.META:
        return meta
    return make_meta(meta.dtype, tuple(meta.shape), meta.strides, Device(HOST))


def _tensors(args: Sequence[Any]) -> Iterator[Any]:
    for a in args:
        for x in a if isinstance(a, (tuple, list)) else (a,):
            if isinstance(x, TensorBase):
                yield x


@contextmanager
def suspended() -> Iterator[None]:
    """Inside, calls compute again: a function is captured and compiled as ever."""
    found = DryExecution.current
    if found is None:
        yield
        return
    DryExecution.current = None
    try:
        yield
    finally:
        DryExecution.current = found
