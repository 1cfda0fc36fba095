"""The CPU backend under watch: every kernel runs several times over fenced copies of its tensors.

For each call of an executable its inputs and outputs are copied between fences (`fences`), tensors
that share memory together. Bytes that no input may read (gaps between elements, outputs, slack,
workspace) hold a pattern. The kernel runs once per entry of `RUNS`, with another placement and
another pattern and number of threads each time. Then

  * what is not an element of an output must be as before (else it was *touched*),
  * all runs must leave the same bytes in the outputs (else bits *differ*: something read what it
    must not, or left a result unwritten, or depends on where its tensors lie),
  * whoever reaches beyond a fence ends the process, for which the parent is waiting,
  * and, if asked for, the reference backend must say about the same (`agree`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucerne._src.backends.cpu.backend import CpuBackend
from lucerne._src.backends.cpu.runtime import memory, pool
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.meta import TensorMeta
from tests.cpu.proof import agree
from tests.cpu.proof.fences import LEFT, NOISE, RIGHT, Fence

RUNS = ((RIGHT, NOISE), (LEFT, 0xFF))
MORE_RUNS = (*RUNS, (RIGHT, 0xCB), (LEFT, 0x7F), (LEFT, NOISE), (RIGHT, 0x00))
THREADS = (1, 2, 4)
"""The runs take turns with them: more threads than a kernel was planned for, and fewer."""
_WORKSPACE_ALIGNMENT = 64
_UNWRITTEN = frozenset(("uninitialized",))
"""Ops whose results are undefined on purpose."""


@dataclasses.dataclass
class Findings:
    """What was seen so far."""

    calls: int = 0
    touched: int = 0
    differing_bits: int = 0
    wrong: int = 0
    """Calls whose numbers the reference backend disputes, where it was asked."""
    notes: list[str] = dataclasses.field(default_factory=list)
    fallbacks: dict[str, int] = dataclasses.field(default_factory=dict)

    def note(self, text: str) -> None:
        if len(self.notes) < 8:
            self.notes.append(text)


class Block(Fence):
    """Stands in for `memory.HostBlock` while a watched kernel runs: its workspace."""

    live: list[Block] | None = None
    how = RUNS[0]

    def __init__(self, nbytes: int) -> None:
        super().__init__(nbytes, *self.how, alignment=_WORKSPACE_ALIGNMENT)
        assert Block.live is not None
        Block.live.append(self)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        data = (self.address, False)
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": data, "version": 3}


_ordinary_block = memory.HostBlock


def _block(nbytes: int) -> Any:
    return _ordinary_block(nbytes) if Block.live is None else Block(nbytes)


class _Storage:
    """What kernels ask of a storage."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.address, self.nbytes = address, nbytes
        self.buffer = _bytes_at(address, nbytes)

    def data_ptr(self) -> int:
        return self.address


class _StandIn:
    """What kernels see of a tensor."""

    def __init__(self, meta: TensorMeta, address: int) -> None:
        self._meta, self._offset, self._array = meta, 0, None
        self._storage = _Storage(address, meta.span * meta.dtype.itemsize)


class Region:
    """Memory that some of a call's tensors share."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.readable = np.zeros(end - start, bool)
        self.writable = np.zeros(end - start, bool)
        self.original = _bytes_at(start, end - start)
        self.itemsize = 1

    def mark(self, mask: np.ndarray[Any, Any], meta: TensorMeta, address: int) -> None:
        """Set `mask` at the bytes of a tensor's elements."""
        self.itemsize = max(self.itemsize, meta.dtype.itemsize)
        at = address - self.start
        if meta.is_dense:
            mask[at : at + meta.numel * meta.dtype.itemsize] = True
            return
        shape, strides = (*meta.shape, meta.dtype.itemsize), (*meta.byte_strides, 1)
        np.ndarray(shape, bool, mask, at, strides)[...] = True


def _bytes_at(address: int, nbytes: int) -> np.ndarray[Any, Any]:
    interface = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}
    return np.asarray(type("Bytes", (), {"__array_interface__": interface})())


def _place(t: Any) -> tuple[int, int]:
    start = t._storage.data_ptr() + t._offset * t._meta.dtype.itemsize
    return start, start + t._meta.span * t._meta.dtype.itemsize


def _regions(inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Region]:
    places = sorted(_place(t) for t in (*inputs, *outputs) if t._meta.numel)
    spans: list[list[int]] = []
    for start, end in places:
        if spans and start < spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], end)
        else:
            spans.append([start, end])
    made = [Region(start, end) for start, end in spans]
    for t in inputs:
        _mark(made, t, "readable")
    for t in outputs:
        _mark(made, t, "writable")
    return made


def _mark(regions: list[Region], t: Any, which: str) -> None:
    if t._meta.numel:
        start, _ = _place(t)
        region = next(r for r in regions if r.start <= start < r.end)
        region.mark(getattr(region, which), t._meta, start)


class Watched:
    """An executable that checks itself whenever it is called."""

    def __init__(self, name: str, run: Any, watcher: WatchedBackend, graph: Graph) -> None:
        self.name, self.run, self.watcher = name, run, watcher
        self.reference = agree.reference_of(graph) if watcher.ask else None

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        before = pool.threads()
        try:
            return self._watched(inputs, outputs)
        finally:
            pool.set_threads(before)

    def _watched(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        tensors = [x for x in inputs if hasattr(x, "_meta")]
        text = self._text(tensors, outputs)
        regions = _regions(tensors, outputs)
        findings = self.watcher.findings
        findings.calls += 1
        rewind = _rewinder(inputs)
        first: tuple[Any, ...] | None = None
        for number, how in enumerate(self.watcher.runs):
            pool.set_threads(THREADS[number % len(THREADS)])
            self.watcher.announce(f"{text}, {_named(how)}, {pool.threads()} threads")
            rewind()
            found, images = self._once(how, regions, inputs, outputs)
            if first is None:
                first = (*images, *_arrays(found))
            elif self.name not in _UNWRITTEN:
                bits = _differing(first, (*images, *_arrays(found)))
                findings.differing_bits += bits
                if bits:
                    findings.note(f"{text}: {bits} bits differ, {_named(how)}")
        if self.reference is not None:
            self._ask(text, found, images, regions, inputs, outputs)
        if isinstance(found, Exception):
            raise found
        for region, image in zip(regions, images, strict=True):
            region.original[region.writable] = image
        return found

    def _ask(
        self,
        text: str,
        found: Any,
        images: list[Any],
        regions: list[Region],
        inputs: Any,
        outs: Any,
    ) -> None:
        """Compare with the reference backend."""
        memories = [r.original.copy() for r in regions]
        given = [_plain(x, regions, memories) for x in inputs]
        wanted = [_plain(x, regions, memories) for x in outs]
        self.watcher.announce(f"reference {text}")
        try:
            answer = self.reference(given, wanted)
        except Exception as error:
            answer = error
        if isinstance(answer, Exception) or isinstance(found, Exception):
            same = str(answer) == str(found)
            problem = "" if same else f"{found!r}, reference {answer!r}"
        elif not outs:
            different = _differing(_arrays(found), _arrays(answer))
            problem = f"{different} bits of what it returned" if different else ""
        else:
            results = [r.original.copy() for r in regions]
            for region, image, result in zip(regions, images, results, strict=True):
                result[region.writable] = image
            ours = [_plain(x, regions, results) for x in outs]
            problem = agree.disagreement([x for x in given if hasattr(x, "_meta")], ours, wanted)
        if problem and self.name not in _UNWRITTEN:
            self.watcher.findings.wrong += 1
            self.watcher.findings.note(f"{text}: {problem}")

    def _once(
        self, how: tuple[str, int], regions: list[Region], inputs: Sequence[Any], outputs: Any
    ) -> tuple[Any, list[Any]]:
        """One run; its answer (or exception) and the bytes of the outputs in each region."""
        fences = [self._fence(region, how) for region in regions]
        before = [fence.bytes.copy() for fence in fences]
        nowhere = Fence(0, *how)
        given = [self._stand_in(x, regions, fences, nowhere) for x in inputs]
        taken = [self._stand_in(x, regions, fences, nowhere) for x in outputs]
        Block.live, Block.how = [], how
        found: Any
        try:
            found = self.run(given, taken)
        except Exception as error:
            found = error
        spaces, Block.live = Block.live, None
        touched = sum(space.touched_around() for space in spaces)
        for region, fence, old in zip(regions, fences, before, strict=True):
            touched += fence.touched_around()
            touched += int(((fence.bytes != old) & ~region.writable).sum())
        if touched:
            self.watcher.findings.touched += touched
            text = self._text([x for x in inputs if hasattr(x, "_meta")], outputs)
            self.watcher.findings.note(f"{text}: {touched} bytes touched, {_named(how)}")
        images = [f.bytes[r.writable] for r, f in zip(regions, fences, strict=True)]
        found = _kept(found, fences)
        for fence in (*fences, *spaces, nowhere):
            fence.close()
        return found, images

    def _fence(self, region: Region, how: tuple[str, int]) -> Fence:
        fence = Fence(region.end - region.start, *how, alignment=region.itemsize)
        np.copyto(fence.bytes, region.original, where=region.readable)
        return fence

    def _stand_in(self, x: Any, regions: list[Region], fences: list[Fence], nowhere: Fence) -> Any:
        if not hasattr(x, "_meta"):
            return x
        if not x._meta.numel:
            return _StandIn(x._meta, nowhere.address)
        start, _ = _place(x)
        at = next(i for i, r in enumerate(regions) if r.start <= start < r.end)
        return _StandIn(x._meta, fences[at].address + start - regions[at].start)

    def _text(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> str:
        ins, outs = (", ".join(_shown(t._meta) for t in ts) for ts in (inputs, outputs))
        return f"{self.name}({ins}) -> {outs}"


def _plain(x: Any, regions: list[Region], memories: list[Any]) -> Any:
    """A tensor of a call over other memory, as the reference backend sees it."""
    if not hasattr(x, "_meta"):
        return x
    if not x._meta.numel:
        return agree.Plain(x._meta, np.empty(0, np.uint8))
    start, _ = _place(x)
    at = next(i for i, r in enumerate(regions) if r.start <= start < r.end)
    return agree.Plain(x._meta, memories[at][start - regions[at].start :])


def _rewinder(inputs: Sequence[Any]) -> Callable[[], None]:
    """Sets random generators among the inputs back to where they are now."""
    states = [(x, x.state_bytes()) for x in inputs if hasattr(x, "state_bytes")]

    def rewind() -> None:
        for generator, state in states:
            generator.load_state_bytes(state)

    return rewind


def _named(how: tuple[str, int]) -> str:
    """Placement and pattern, for messages."""
    return f"{how[0]} {'noise' if how[1] == NOISE else f'{how[1]:02X}'}"


def _shown(meta: TensorMeta) -> str:
    strides = "" if meta.contiguous else f"/{list(meta.strides)}"
    return f"{meta.dtype.name}{list(meta.shape)}{strides}"


def _kept(found: Any, fences: list[Fence]) -> Any:
    """A returned result, out of the fenced memory."""
    if isinstance(found, np.ndarray):
        return found.copy(order="K")
    if isinstance(found, (list, tuple)):
        return type(found)([_kept(x, fences) for x in found])
    return found


def _arrays(found: Any) -> tuple[Any, ...]:
    """The bytes of returned arrays; an exception as its text."""
    if isinstance(found, Exception):
        return (np.frombuffer(repr(found).encode(), np.uint8),)
    if isinstance(found, np.ndarray):
        return (np.ascontiguousarray(found).reshape(-1).view(np.uint8),)
    if isinstance(found, (list, tuple)):
        return tuple(a for x in found for a in _arrays(x))
    return ()


def _differing(first: tuple[Any, ...], second: tuple[Any, ...]) -> int:
    if [a.size for a in first] != [a.size for a in second]:
        return 8 * sum(max(a.size, b.size) for a, b in zip(first, second, strict=False)) or 1
    return sum(
        int(np.bitwise_count(a ^ b).sum())
        for a, b in zip(first, second, strict=True)
        if not np.array_equal(a, b)
    )


class WatchedBackend(CpuBackend):
    """Compiles as the CPU backend does; what it compiles is watched."""

    def __init__(self, announce: Callable[[str], None], *, more: bool = False) -> None:
        """`more`: with more patterns, and asking the reference backend."""
        super().__init__()
        self.announce, self.runs, self.ask = announce, MORE_RUNS if more else RUNS, more
        self.findings = Findings()
        memory.HostBlock = _block  # type: ignore[assignment, misc]

    def compile(self, graph: Graph) -> Any:
        self.announce(f"compile {graph.nodes[0]!r}")
        before = sum(self.fallbacks.values())
        made = super().compile(graph)
        if sum(self.fallbacks.values()) == before:
            return Watched(graph.nodes[0].op.qualified, made, self, graph)
        name, fallbacks = graph.nodes[0].op.qualified, self.findings.fallbacks
        fallbacks[name] = fallbacks.get(name, 0) + 1
        return made

    def fuse(self, graph: Graph) -> Any:
        self.announce(f"fuse {graph.nodes[-1]!r}")
        made = super().fuse(graph)
        name = "+".join(dict.fromkeys(n.op.qualified for n in graph.nodes))
        return None if made is None else Watched(name, made, self, graph)
