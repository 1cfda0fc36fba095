"""Cells on a mesh: what calls and the ops that place values do with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lucerne._src.backends.contract.placement import MeshLayout
from lucerne._src.backends.xla.cells import ArrayCell
from lucerne._src.backends.xla.layout import read
from lucerne._src.backends.xla.meshes import (
    MeshUse,
    as_before,
    copied,
    is_planned,
    laid,
    layout_of,
    mesh_of,
    of_local_parts,
    part,
    place_of,
    sharding_of,
    spread,
    spread_terms,
    whole,
    with_its_terms,
)
from lucerne._src.backends.xla.planning import XlaPlanning
from lucerne._src.backends.xla.several import Several, agree, is_over_processes, on_host
from lucerne._src.backends.xla.types import jtype
from lucerne._src.base.process.source_location import describe, user_place
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.meta import TensorMeta

PLACING = ("placed", "placed_like")


def mesh_of_tensors(inputs: Iterable[Any]) -> Mesh | None:
    """The mesh that the operands of a call lie on; None: on none."""
    arrays = (x._storage.buffer.array for x in inputs)
    return mesh_of(place_of(x) for x in arrays if x is not None)


def gathered(outputs: Sequence[Any]) -> list[Any]:
    """How the memory lies that a call writes to: it stays so."""
    arrays = [o._storage.buffer.array for o in outputs]
    return [None if x is None else place_of(x) for x in arrays]


def refill(cell: ArrayCell, data: Any) -> None:
    """Bytes from the host in place of all that a cell is; on a mesh they are laid out as before."""
    was = place_of(cell.array) if MeshUse.begun and cell.array is not None else None
    meta = cell.meta
    cell.fill(data)
    if was is not None and meta is not None:
        cell.settle(meta, 0)
        cell.array = as_before(cell.array, was)


def join(cells: Sequence[ArrayCell]) -> tuple[list[Any], list[int]]:
    """How cells lie that one program takes. If one is on a mesh all are: those that were on none
    (which they are is told too) are whole on each device from now on, or each call would bring
    them there."""
    found = [place_of(c.array) for c in cells]
    alone = [k for k, p in enumerate(found) if p is None]
    on = next((p for p in found if p is not None), None)
    if on is None:
        return found, []
    mesh = (on if isinstance(on, NamedSharding) else on[0]).mesh
    target = NamedSharding(mesh, PartitionSpec())
    for k in alone:
        cell = cells[k]
        if place_of(cell.array) is None:  # (it may have come twice)
            cell.array = laid(cell.array, target)
        found[k] = place_of(cell.array)
    return found, alone


def agree_on_call(graph: Graph, arrays: Iterable[Any]) -> None:
    """Processes that are to make one call together have the same arrays outside of the mesh."""
    own = [(f"operand {k}", x) for k, x in enumerate(arrays) if isinstance(x, jax.Array)]
    local = [pair for pair in own if not is_over_processes(pair[1])]
    if Several.count > 1 and len(local) < len(own):
        call = ", ".join(n.op.qualified for n in graph.nodes)
        agree(f"{call} at {describe(user_place())}", [("call", call), *local])


def value_of_tensor(t: Any) -> Any:
    """A tensor's elements as one whole array."""
    cell: ArrayCell = t._storage.buffer
    if cell.array is None:
        cell.settle(t._meta, t._offset)
    assert cell.meta is not None
    if XlaPlanning.now is not None:
        return _planned_value(t, cell)
    return read(cell.array, cell.meta, t._meta, t._offset)


def _planned_value(t: Any, cell: ArrayCell) -> Any:
    """The same of a plan: where a view lies is known of one with its cell's shape."""
    x, meta = cell.array, t._meta
    if _fills(t):
        return whole(x)
    shape = tuple(meta.shape)
    there = x.sharding if is_planned(x) and x.shape == shape else None
    return jax.ShapeDtypeStruct(shape, jtype(meta.dtype), sharding=there)


def _alone(x: Any) -> Any:
    """An array on no mesh. (By way of the host: JAX would refuse to compute with one that it was
    told to keep on one device and another on a mesh.)"""
    if is_planned(x):
        return jax.ShapeDtypeStruct(x.shape, x.dtype)
    return x if sharding_of(x) is None else jnp.asarray(np.array(on_host(x)))


def _fills(t: Any) -> bool:
    cell = t._storage.buffer
    return cell.meta is t._meta and not t._offset


def _held(t: Any, value: Any) -> Any:
    """What tells how a tensor lies: what its cell holds, or of a view its elements."""
    return t._storage.buffer.array if _fills(t) else value


class PlacingCall:
    """An eager call of `placed` or `placed_like`."""

    def __init__(self, graph: Graph) -> None:
        [node] = graph.nodes
        self._like = node.op.qualified == PLACING[1]
        self._layout: MeshLayout | None = None if self._like else node.args[1]
        self._agreed = Several.count == 1
        """Whether what came on no mesh is the same in all processes: looked at once."""

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        [out], t = outputs, inputs[-1 if self._like else 0]
        x = copied(value_of_tensor(t))  # an array belongs to one cell
        if self._like:
            other = inputs[0]
            value = value_of_tensor(other)
            found = as_before(x, place_of(_held(other, value)))
        elif self._layout is None:
            found = _alone(x)
        else:
            held = _held(t, x)
            if not self._agreed and sharding_of(x) is None:
                self._agreed = True
                agree(f"tensor on a mesh at {describe(user_place())}", [("tensor", x)])
            found = with_its_terms(held, self._layout) or spread(x, self._layout, held)
        out._storage.buffer.hold(found, out._meta)


def _size(meta: TensorMeta) -> int:
    return meta.numel * meta.dtype.itemsize


def place_parts(t: Any, layout: MeshLayout, parts: Sequence[Any]) -> None:
    """Memory of a tensor, of its parts in this process."""
    given = [np.asarray(value_of_tensor(p)) for p in parts]
    t._storage.buffer.hold(of_local_parts(given, tuple(t._meta.shape), layout), t._meta)


def place(t: Any, layout: MeshLayout | None, terms: Any = None) -> None:
    """Lay the memory of a tensor out."""
    x, cell, meta = value_of_tensor(t), t._storage.buffer, t._meta
    if not _fills(t) and not t._offset and meta.is_dense and cell.used == _size(meta):
        cell.hold(x, meta)  # (a view of all of it was read first: the cell lies as that does)
    if not _fills(t):
        raise NotImplementedError(
            "this tensor is a part of another one's memory (a view), which can't be placed alone: "
            "place the whole, or a copy (`clone()`)"
        )
    if terms is not None and layout is not None:
        cell.array = spread_terms(value_of_tensor(terms), layout)
    else:
        cell.array = _alone(x) if layout is None else spread(x, layout, cell.array)


def tensor_layout(t: Any) -> MeshLayout | None:
    """How a tensor lies on the mesh; None: on one device, or nowhere yet."""
    cell = t._storage.buffer
    if cell.array is None:
        return None
    return layout_of(cell.array if _fills(t) else value_of_tensor(t))


def tensor_part(t: Any, k: int) -> tuple[ArrayCell, TensorMeta]:
    """What device `k` has of a tensor, in a cell of its own."""
    cell = t._storage.buffer
    if XlaPlanning.now is not None:
        XlaPlanning.now.look(cell)
    found = part(cell.array if _fills(t) else value_of_tensor(t), k)
    meta: TensorMeta = t._meta.like(shape=found.shape)
    made = ArrayCell(found.nbytes)
    made.hold(jnp.asarray(np.array(found)), meta)
    return made, meta
