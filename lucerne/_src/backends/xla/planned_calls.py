"""Calls and whole steps while planning: their results are shapes, and where these would lie."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from lucerne._src.backends.contract.backend import TensorState
from lucerne._src.backends.contract.placement import MeshShape
from lucerne._src.backends.contract.planned import (
    Collective,
    PlanComplete,
    PlanError,
    PlannedArgument,
    PlannedProgram,
    ProgramMemory,
)
from lucerne._src.backends.xla.cells import ArrayCell
from lucerne._src.backends.xla.mesh_calls import value_of_tensor
from lucerne._src.backends.xla.meshes import (
    Spread,
    as_before,
    as_it_was,
    layout_of,
    place_of,
    shape_of_mesh,
    sharding_of,
)
from lucerne._src.backends.xla.planning import (
    XlaPlanning,
    share_of,
    short_line,
    struct,
)
from lucerne._src.backends.xla.program_text import collectives, moved_bytes, product_flops
from lucerne._src.backends.xla.programs import MadeStep, Reading, StepProgram, is_whole
from lucerne._src.backends.xla.types import jtype
from lucerne._src.backends.xla.walk import Walk
from lucerne._src.base.process.source_location import describe, user_place
from lucerne._src.ir.graph import Graph, Node


def planning() -> XlaPlanning:
    """The one under way."""
    assert XlaPlanning.now is not None
    return XlaPlanning.now


class PlannedCall:
    """An eager call: its results have shapes. They lie as the first operand of the same shape does,
    which an engine would mostly find as well; writes leave memory where it is."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._depends = graph.nodes[0].op.qualified if len(graph.nodes) == 1 else ""

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[TensorState]) -> None:
        plan, line = planning(), describe(user_place())
        plan.eager[short_line(line)] += 1
        if self._depends == "nonzero":
            raise PlanError(
                f"at {line} the shape of a result depends on values, and there are "
                "none in a plan. (`torch.where` with three arguments has the shape of its operands)"
            )
        given = [value_of_tensor(x) for x in inputs if hasattr(x, "_meta")]
        for o in outputs:
            cell, meta = o._storage.buffer, o._meta
            was = None if cell.array is None else place_of(cell.array)
            if not is_whole(meta, o._offset, cell.used):
                if cell.array is None:
                    cell.settle(meta, o._offset)
                continue
            made = struct(meta.shape, jtype(meta.dtype))
            like = next((x for x in given if x.shape == made.shape), None)
            was = place_of(like) if was is None and like is not None else was
            cell.hold(as_before(made, was), meta)


class PlannedWalk(Walk):
    """A walk that tells XLA the user's line of each op and which op it is: both can then be read
    from its text."""

    def _results(self, node: Node, args: tuple[Any, ...]) -> Any:
        if node.place is None:
            return super()._results(node, args)
        place = node.place
        name = place.file.replace("\\", "/").rpartition("/")[2]
        where = f"{'backward of ' if place.backward else ''}{name}:{place.line}"
        said = f"{where} {place.module}".strip()
        with jax.named_scope("{" + f"{said}|{node.op.qualified}" + "}"):
            return super()._results(node, args)


class PlannedStep(StepProgram):
    """A captured graph: what runs it is `PlannedRun`."""

    walk = PlannedWalk

    def prepare(self) -> None:
        """Nothing: where arguments lie is seen when they come."""

    def _made(
        self, readings: list[Reading], arrays: Sequence[Any], numbers: Sequence[float]
    ) -> MadeStep:
        began = time.process_time()
        plan = planning()
        if not any(sharding_of(x) for x in arrays):
            arrays = [struct(x.shape, x.dtype, plan.alone()) for x in arrays]
        made = super()._made(readings, arrays, numbers)
        run = PlannedRun(plan, made, arrays, time.process_time() - began)
        return made._replace(run=run, checks=[])

    def _compiled(self, lowered: Any) -> Any:
        return None  # (when it is known to matter)


class PlannedRun:
    """A program that was lowered. It is compiled when that is needed: to know where a result lies
    that nobody placed, or to tell of it."""

    def __init__(
        self, plan: XlaPlanning, made: MadeStep, arrays: Sequence[Any], took: float
    ) -> None:
        self.plan, self.lowered, self.seconds = plan, made.lowered, took
        self.places = made.places
        self.given = [arrays[k] for k in made.first]
        self.name, self.calls, self.elsewhere = "", 0, 0
        self.compiled: Any = None
        self._results: list[Any] | None = None
        meshes = [s.mesh for s in map(sharding_of, self.given) if s is not None]
        self.mesh = meshes[0] if meshes else None

    def __call__(self, *arrays: Any) -> list[Any]:
        if not self.calls:
            self.name = short_line(describe(user_place()))
            self.plan.runs.append(self)
            self.elsewhere = _alive() - sum(map(_share, self.given))
        if self.calls == self.plan.calls > 0:
            raise PlanComplete
        self.calls += 1
        if self._results is None:
            self._results = self._laid()
        return list(self._results)

    def _laid(self) -> list[Any]:
        """The results as cells hold them."""
        infos = jax.tree.leaves(self.lowered.out_info)
        trees = jax.tree.structure(self.lowered.out_info)
        sizes = [len(jax.tree.leaves(x)) for x in self.lowered.out_info]
        assert sizes == [1] * len(sizes)
        if any(p is None and x.ndim for p, x in zip(self.places, infos, strict=False)):
            self.compile()
        if self.compiled is not None:
            found = jax.tree.leaves(self.compiled.output_shardings)
        else:
            whole = None if self.mesh is None else NamedSharding(self.mesh, PartitionSpec())
            found = [
                whole if p is None else as_it_was(x.shape, p)[0]
                for p, x in zip(self.places, infos, strict=False)
            ]
            found += [whole] * (len(infos) - len(found))
        made = [struct(x.shape, x.dtype, s) for x, s in zip(infos, found, strict=True)]
        laid: list[Any] = jax.tree.unflatten(trees, made)
        return laid

    def compile(self) -> None:
        """For the chip."""
        if self.compiled is None:
            began = time.process_time()
            self.compiled = self.lowered.compile()
            self.seconds += time.process_time() - began

    def told(self) -> PlannedProgram:
        """As data."""
        mesh = None if self.mesh is None else shape_of_mesh(self.mesh)
        made = PlannedProgram(self.name, self.calls, mesh, seconds=self.seconds)
        if self.compiled is None:
            made.compiled = False
            return made
        text = self.compiled.as_text()
        made.flops, made.nbytes = product_flops(text), moved_bytes(text)
        made.collectives = [_named(c, mesh) for c in collectives(text)]
        made.memory = self._memory()
        made.arguments = self._arguments()
        return made

    def _memory(self) -> ProgramMemory:
        found = self.compiled.memory_analysis()
        return ProgramMemory(
            found.argument_size_in_bytes,
            found.output_size_in_bytes,
            found.alias_size_in_bytes,
            found.temp_size_in_bytes,
            found.generated_code_size_in_bytes,
            max(self.elsewhere, 0),
        )

    def _arguments(self) -> list[PlannedArgument]:
        told = []
        for x in sorted(self.given, key=_share, reverse=True):
            array = x.array if type(x) is Spread else x
            layout = layout_of(x)
            placements = "" if layout is None else ", ".join(map(str, layout.placements))
            what = f"{array.dtype.name}{list(x.shape)}"
            whole = int(array.size) * int(array.dtype.itemsize)
            told.append(PlannedArgument(what, placements, _share(x), whole))
        return told


def _share(x: Any) -> int:
    return share_of(x.array if type(x) is Spread else x)


def _alive() -> int:
    """Bytes of all cells, on each device."""
    gc.collect()
    cells = (x for x in gc.get_objects() if type(x) is ArrayCell)
    return sum(_share(c.array) for c in cells if c.array is not None)


def _named(found: Collective, mesh: MeshShape | None) -> Collective:
    """With the dimensions of the mesh that the group goes along."""
    if mesh is None:
        return found
    steps = [math.prod(mesh.sizes[d + 1 :]) for d in range(len(mesh.sizes))]
    group = found.group or tuple(range(len(mesh.devices)))
    pairs = found.pairs or [(group[0], other) for other in group]
    axes = tuple(
        name
        for name, n, step in zip(mesh.names, mesh.sizes, steps, strict=True)
        if any(a // step % n != b // step % n for a, b in pairs)
    )
    return replace(found, group=() if found.pairs else group, axes=axes)
