"""The backend object: host memory, and graphs compiled to machine code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.backends.contract.backend import Backend, Buffer, Executable, Runner, SizedProgram
from lucerne._src.backends.contract.step_runner import executable_of, shape_of
from lucerne._src.backends.cpu.native import native
from lucerne._src.backends.cpu.program.late import made_for_all
from lucerne._src.backends.cpu.rules import fused
from lucerne._src.backends.cpu.rules.casts import READ_NARROW, is_rounding, is_widening
from lucerne._src.backends.cpu.rules.table import RULES, load
from lucerne._src.backends.cpu.runtime import disk, memory, pool
from lucerne._src.backends.cpu.runtime.code import NoCodeError, listed, log, on_all_cores
from lucerne._src.base.config import config
from lucerne._src.base.device import device
from lucerne._src.base.process import notices
from lucerne._src.base.process.sealed_folder import Cache
from lucerne._src.ir import op as op_
from lucerne._src.ir.checks.index_maps import holds
from lucerne._src.ir.graph import Graph, Node
from lucerne._src.ir.op import Op
from lucerne._src.ir.program import Program
from lucerne._src.ir.symbolic.numbers import checking

_MOST_FUSED = 4096


class CpuBackend(Backend):
    """Machine code made by LLVM; what has no rule runs on the reference backend, and is counted."""

    contract_version = 5

    def __init__(self) -> None:
        self.fallbacks: dict[str, int] = {}
        """How many graphs of each op were handed to the reference backend."""
        self._native: native.Native | None = None
        self._fused: dict[Any, Executable | None] = {}
        self._verified: set[Any] = set()

    def fast_path(self) -> native.Native:
        """The native tensor type and dispatcher."""
        if self._native is None:
            self._native = native.load()
        return self._native

    @property
    def native(self) -> native.Native | None:
        """The same, or None if nobody asked for it."""
        return self._native

    def identity(self) -> bytes | None:
        """All that machine code depends on besides its own key."""
        return disk.environment()

    def kept(self) -> Cache:
        """The kernels on disk."""
        return disk.cache_of_process()

    def devices(self) -> list[device]:
        return [device("cpu")]

    def allocate(self, nbytes: int) -> Buffer:
        return memory.allocate(nbytes) if self._native is None else self._native.allocate(nbytes)

    @property
    def memory(self) -> memory.Allocator:
        """Statistics of the host's memory."""
        return memory.allocator()

    def prefers_channels_last(self, node: Node) -> bool:
        """Whether compiled programs should turn the images of a convolution around.

        No. ResNet-18 (CIFAR stem, batch 32, one thread, ms for a training step): convolutions 633
        as they are, 611 with images and weights turned; batch norms 23 and 40; turning weights and
        their gradients costs 17 more. The packing of the convolutions hides the layout already.
        """
        return False

    def threads(self) -> int:
        return pool.threads()

    def set_threads(self, n: int) -> None:
        pool.set_threads(n)

    def set_flush_denormal(self, on: bool) -> bool:
        return pool.set_flush_denormal(on)

    def to_host(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        return np.asarray(buffer)

    def from_host(self, data: np.ndarray[Any, Any]) -> Buffer:
        made = self.allocate(data.nbytes)
        self.to_host(made)[:] = data.reshape(-1).view(np.uint8)
        return made

    def address(self, buffer: Buffer) -> int:
        if isinstance(buffer, np.ndarray):
            return int(buffer.__array_interface__["data"][0])
        return int(buffer.address)

    def supports(self, op: Op) -> bool:
        known = op.qualified in RULES or op.kind in (op_.POINTWISE, op_.REDUCTION, op_.VIEW)
        return known or backends.get("reference").supports(op)

    def compile(self, graph: Graph) -> Executable:
        found = None
        if len(graph.nodes) == 1:
            node = graph.nodes[0]
            rule = RULES.get(node.op.qualified) or RULES.get(node.op.kind)
            try:
                found = None if rule is None else made_for_all(graph, lambda g: rule(g.nodes[0]))
            except NoCodeError as error:
                _tell_of_reference(node.op.qualified, error)
        if found is not None:
            return found
        for node in graph.nodes:
            name = node.op.qualified
            self.fallbacks[name] = self.fallbacks.get(name, 0) + 1
        return backends.get("reference").compile(graph)

    def fuses(self, op: Op) -> bool:
        return fused.fuses(op)

    def fuse(self, graph: Graph) -> Executable | None:
        key = shape_of(graph)
        if key not in self._fused:
            if len(self._fused) >= _MOST_FUSED:
                self._fused.clear()
                self._verified.clear()
            try:
                self._fused[key] = made_for_all(graph, fused.fuse)
            except NoCodeError:  # its ops one by one, each as it can
                self._fused[key] = None
        if config.verify_fusion and key not in self._verified:
            self._verified.add(key)
            with checking():
                if self._fused[key] is not None and not holds(graph, fused.walk):
                    self._fused[key] = None
        return self._fused[key]

    def fuses_groups(self, graphs: list[Graph]) -> list[bool]:
        """Of which groups one kernel can be made. They are made at once, on all cores."""
        keys = [shape_of(g) for g in graphs]
        distinct = dict(sorted(zip(keys, graphs, strict=True), key=lambda x: fused.is_short(x[1])))
        made = dict(zip(distinct, on_all_cores(self.fuse, list(distinct.values())), strict=True))
        return [made[key] is not None for key in keys]

    anchors = frozenset(fused.ANCHORS)
    """Ops that take element-wise ops behind them into their own loops."""
    prologue_anchors = fused.PROLOGUE_ANCHORS
    over_operand = fused.OVER_OPERAND

    def updates(self, node: Node, op: str) -> bool:
        """Products of tiles do Adam's step for the weight whose gradient they are."""
        return fused.updates(node, op)

    def is_costly(self, node: Node) -> bool:
        """Ops with long code: behind a large product they would wait for each other."""
        return node.op.kind == op_.POINTWISE and node.op.cost != op_.CHEAP

    def folds_into_loads(self, node: Node) -> bool:
        """Rounding to bfloat16: packing for tiles does it on the way."""
        return is_rounding(node)

    def recomputed_in_readers(self, node: Node, readers: Sequence[Node]) -> bool:
        """Scores in bfloat16 are half the bytes, for the product that writes them as well."""
        return is_widening(node) and all(r.op.qualified in READ_NARROW for r in readers)

    @property
    def kernels(self) -> list[tuple[Any, float, bool]]:
        """All kernels of this process: key, seconds it took, whether its code was on disk."""
        return log

    def limits(self, *, anew: bool = False) -> dict[str, Any]:
        """What the processor can do at best, measured (see `limits.py`)."""
        found: dict[str, Any] = load("limits").limits(anew=anew)
        return found

    def kernel_text(self, graph: Graph) -> dict[str, str]:
        """LLVM's text and the assembly of the kernels."""
        self._fused.pop(shape_of(graph), None)  # it shall be made before our eyes
        found = listed(lambda: executable_of(graph, self))
        return {
            "ll": "\n".join(f"; {x.key!r}\n{x.text}" for x in found),
            "s": "\n".join(f"# {x.key!r}\n{x.assembly}" for x in found),
        }

    def assemble(self, program: Program, memory: str | None = None) -> Runner:
        """A program as one call of machine code (see `program/assemble.py`)."""
        return load("programs").assemble(program, self, memory)

    def sized(self, program: Program, names: Sequence[str]) -> SizedProgram:
        """A program for all sizes (see `program/sized.py`)."""
        made: SizedProgram = load("programs").sized(program, self, names)
        return made


def _tell_of_reference(op: str, error: NoCodeError) -> None:
    notices.once(
        f"{op} runs on the slow reference backend: {error}. Results are the same. Please report "
        "the message with the output of `python -m lucerne.utils.collect_env`."
    )
