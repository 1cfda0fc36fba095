"""How a convolution runs: a few parallel phases over one table of parameters.

A plan is a list of phases (a compiled task and its number of chunks), a table of numbers
(`ConvTable`) and a size of workspace. One tiny entry serves them all: it writes a *context* at the
start of the workspace and runs the phases one after the other. A task is `void task(ptr context,
i64 chunk,
i64 thread)`; it reads pointers and parameters through `ConvContext`.

A kernel may have a *spare* one for numbers it can't deal with: a task that meets such a number sets
the flag of the context, and when all phases are over the spare kernel does everything once more.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.types import I64, PTR, VOID
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.backends.cpu.runtime.pool import MAX_THREADS


def words(*lines: str) -> list[str]:
    """The names in some lines of text."""
    return " ".join(lines).split()


MAX_PHASES = 4
_HEAD = 1 + 2 * MAX_PHASES
_OUT, _FIRST, _SECOND, _THIRD, _WORKSPACE, _PARAMETERS = range(6)
_POINTERS = {
    "out": _OUT, "first": _FIRST, "second": _SECOND, "third": _THIRD, "workspace": _WORKSPACE,
}  # fmt: skip
_FLAG = 6
_EXTRA = 8
MAX_EXTRA = 8
_CONTEXT_BYTES = (_EXTRA + MAX_EXTRA) * 8
_SPARE = ("ENTRY", "WORDS", "AT")
"""Of a spare kernel: its address, how many fixed words it has, the address of those: in a block
they would be carried along in every call."""


@dataclass(frozen=True)
class Phase:
    """`task`: its address. Chunks may run in any order and at the same time."""

    task: int
    chunks: int


class ConvTable:
    """Named words first, then lists of words; everything a task must know about sizes.

    `names` is fixed by the code that reads the table, `words` by the shape.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.values: dict[str, int] = {}
        self.tail: list[int] = []

    def set(self, **values: int) -> None:
        unknown = values.keys() - set(self.names)
        if unknown:
            raise KeyError(f"no parameter is named {sorted(unknown)}")
        self.values.update(values)

    def append(self, words: Sequence[int]) -> int:
        """Words after the named ones; returns their place in the table."""
        place = len(self.names) + len(self.tail)
        self.tail.extend(words)
        return place

    def area(self, space: ConvSpace, name: str, nbytes: int) -> None:
        """Scratch of each thread. The odd line keeps equal places of two threads apart."""
        nbytes = (nbytes + 63) // 64 * 64 + 64
        self.set(**{name: space.take(nbytes * MAX_THREADS), f"{name}_SIZE": nbytes})

    def words(self) -> list[int]:
        return [self.values.get(name, 0) for name in self.names] + self.tail


class ConvContext:
    """What a task sees: `c.out`, `c.first` ... are pointers, `c.NAME` a parameter."""

    out: LLVMValue
    first: LLVMValue
    second: LLVMValue
    third: LLVMValue
    workspace: LLVMValue

    def __init__(self, f: LLVMFunction, place: LLVMValue, names: Sequence[str]) -> None:
        self.f, self.place = f, place
        self.index = {name: i for i, name in enumerate(names)}
        self.table = f.word(place, _PARAMETERS, PTR)

    def __getattr__(self, name: str) -> LLVMValue:
        if name in _POINTERS:
            return self.f.word(self.place, _POINTERS[name], PTR)
        return self.f.word(self.table, self.index[name])

    def get(self, names: str) -> list[LLVMValue]:
        return [getattr(self, name) for name in names.split()]

    def pointer(self, name: str) -> LLVMValue:
        """A parameter that is an address (of code)."""
        return self.f.word(self.table, self.index[name], PTR)

    def extra(self, number: int) -> LLVMValue:
        """An operand of the element-wise ops after the convolution."""
        return self.f.word(self.place, _EXTRA + number, PTR)

    @property
    def flag(self) -> LLVMValue:
        """Where a task says that the spare kernel is needed."""
        return self.f.at(self.place, _FLAG * 8)

    def word_at(self, index: LLVMValue) -> LLVMValue:
        """Where word number `index` of the table stands."""
        return self.f.at(self.table, index, I64)

    def space(self, name: str) -> LLVMValue:
        """The part of the workspace whose byte offset is parameter `name`."""
        return self.f.at(self.workspace, getattr(self, name))

    def scratch(self, name: str, thread: LLVMValue) -> LLVMValue:
        """This thread's part of an area: `name` is its offset, `name`_SIZE the bytes of each."""
        return self.f.at(self.space(name), thread * getattr(self, f"{name}_SIZE"))


@dataclass
class ConvSpace:
    """Hands out aligned areas of the workspace."""

    used: int = 0

    def take(self, nbytes: int) -> int:
        start = self.used
        self.used += (nbytes + 63) // 64 * 64
        return start


@dataclass(frozen=True)
class Given:
    """Which inputs of the call are the operands of the convolution, and which the extra ones."""

    operands: tuple[int, ...]
    extra: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Of inputs: one may be both (`conv(x) * x`)."""
        return len({*self.operands, *self.extra})


def make_kernel(
    phases: Sequence[Phase],
    table: ConvTable,
    workspace: int,
    tensors: int,
    work: float,
    spare: NativeKernel | None = None,
    given: Given | None = None,
) -> NativeKernel:
    """The kernel that runs `phases`. `tensors` inputs (2, or 3 with a bias); `work` in ns."""
    assert len(phases) <= MAX_PHASES
    given = given or Given(tuple(range(tensors)))
    tensors = given.count
    head = [len(phases)]
    for phase in phases:
        head += [phase.task, phase.chunks]
    head += [0] * (_HEAD - len(head))
    listed = table.words()
    key = ("conv.entry", given.operands, given.extra, spare is not None)
    entry = compiled(key, lambda m: _write_entry(m, given, spare is not None))["entry"]
    kept: tuple[Any, ...] = ()
    if spare is not None:
        assert (spare.outputs, spare.tensors) == (1, tensors), "another call"
        fixed = (ctypes.c_int64 * len(spare.extra))(*spare.extra)
        kept = (fixed, *spare.kept)
        head += [spare.entry, len(spare.extra), ctypes.addressof(fixed)]
        workspace = max(workspace, spare.workspace + (spare.words * 8 + 63) // 64 * 64)
    made = NativeKernel(
        entry, 1, tensors, extra=[*head, *listed], workspace=workspace + _CONTEXT_BYTES, work=work
    )
    made.kept = kept
    return made


def _write_entry(m: Module, call: Given, has_spare: bool) -> None:
    tensors = call.count
    with m.function("entry", [("block", PTR)], I64) as f:
        [block] = f.args
        space = f.word(block, 1 + tensors, PTR)
        head = f.at(block, (2 + tensors) * 8)
        table = f.at(head, (_HEAD + len(_SPARE) * has_spare) * 8)
        inside = f.at(space, _CONTEXT_BYTES)
        given = [f.word(block, i, PTR) for i in range(1 + tensors)]
        operands = [given[0], *(given[1 + i] for i in call.operands)]
        pointers = [*operands, *[f.zero(PTR)] * (4 - len(operands)), inside, table]
        for i, pointer in enumerate(pointers):
            f.store(pointer, f.at(space, i * 8))
        for k, i in enumerate(call.extra):
            f.store(given[1 + i], f.at(space, (_EXTRA + k) * 8))
        f.store(f.constant(0), f.at(space, _FLAG * 8))
        with f.loop(0, f.word(head, 0)) as loop:
            phase = f.at(head, loop.index * 16 + 8)
            f.call("lucerne_pfor", VOID, [f.word(phase, 0, PTR), space, f.word(phase, 1)])
        if has_spare:
            flag = f.atomic_load(I64, f.at(space, _FLAG * 8), "monotonic")
            with f.if_(f.compare("ne", flag, 0)):
                _call_spare(f, f.at(head, _HEAD * 8), given, inside)
        f.ret(0)


def _call_spare(
    f: LLVMFunction, spare: LLVMValue, given: list[LLVMValue], space: LLVMValue
) -> None:
    """Call the spare kernel; its block stands in the workspace, the rest of which is its own."""
    entry = f.word(spare, _SPARE.index("ENTRY"), PTR)
    count, fixed = f.word(spare, _SPARE.index("WORDS")), f.word(spare, _SPARE.index("AT"), PTR)
    block = space
    own = f.at(block, ((count + (len(given) + 1)) * 8 + 63) & -64)
    for i, pointer in enumerate([*given, own]):
        f.store(pointer, f.at(block, i * 8))
    rest = f.at(block, (len(given) + 1) * 8)
    f.copy_bytes(rest, fixed, count * 8)
    f.call_at(entry, I64, [block])


TASK: list[Any] = [("context", PTR), ("chunk", I64), ("thread", I64)]
"""The parameters of a task."""


def task_code(key: tuple[Any, ...], write: Callable[[Module], None]) -> int:
    """The address of the function "task" that `write` puts into a module."""
    return compiled(key, write)["task"]
