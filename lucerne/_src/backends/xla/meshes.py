"""Arrays over a mesh of devices: torch's placements as JAX's shardings.

A cell on a mesh holds an array with a `NamedSharding`, and XLA partitions each program that reads
it. What a sharding can't say, `Spread` does: a dimension that is cut into slices of different sizes
is padded, and terms of a sum are stacked along leading dimensions. Programs read what is meant.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lucerne._src.backends.contract.placement import (
    MeshLayout,
    MeshShape,
    Partial,
    Placement,
    Replicate,
    Shard,
)
from lucerne._src.backends.xla.planning import XlaPlanning
from lucerne._src.backends.xla.several import from_each, is_over_processes, of_parts

Shape = tuple[int, ...]
_SHAPES: dict[Mesh, MeshShape] = {}
"""What each mesh was made for."""


class MeshUse:
    """Whether anything lies on a mesh: until then no call asks."""

    begun = False


@functools.cache
def jax_mesh(shape: MeshShape) -> Mesh:
    MeshUse.begun = True
    plan = XlaPlanning.now
    devices = jax.devices() if plan is None else plan.devices(max(shape.devices, default=0) + 1)
    picked = np.array([devices[k] for k in shape.devices]).reshape(shape.sizes)
    made = Mesh(picked, shape.names)
    _SHAPES.setdefault(made, shape)
    return made


def shape_of_mesh(mesh: Mesh) -> MeshShape:
    """What a mesh was made for."""
    return _SHAPES[mesh]


# ---- what an array stands for --------------------------------------------------------------------


@jax.tree_util.register_pytree_node_class
class Spread:
    """An array that stands for one of another shape: padded at the ends of its dimensions, and
    with leading dimensions along which it is to be reduced (by `terms`)."""

    __slots__ = ("array", "shape", "terms")

    def __init__(self, array: Any, shape: Shape, terms: tuple[str, ...] = ()) -> None:
        self.array, self.shape, self.terms = array, shape, terms

    def tree_flatten(self) -> tuple[tuple[Any], tuple[Any, ...]]:
        return (self.array,), (self.shape, self.terms)

    @classmethod
    def tree_unflatten(cls, aux: tuple[Any, ...], children: Sequence[Any]) -> Spread:
        return cls(children[0], *aux)


def _mean(x: Any, axis: int) -> Any:
    total = jnp.sum(x, axis, dtype=x.dtype)
    if x.dtype.kind in "iu":
        return total // x.shape[axis]
    return total / x.shape[axis]


_FOLDS: dict[str, Callable[..., Any]] = {
    "sum": lambda x, axis: jnp.sum(x, axis, dtype=x.dtype),
    "avg": _mean,
    "product": lambda x, axis: jnp.prod(x, axis, dtype=x.dtype),
    "max": jnp.max,
    "min": jnp.min,
    "band": lambda x, axis: lax.reduce_and(x, (axis,)),
    "bor": lambda x, axis: lax.reduce_or(x, (axis,)),
    "bxor": lambda x, axis: lax.reduce_xor(x, (axis,)),
}


def whole(x: Any) -> Any:
    """The array that is meant."""
    if type(x) is not Spread:
        return x
    found = x.array
    if is_planned(found):
        return jax.ShapeDtypeStruct(x.shape, found.dtype)
    for op in x.terms:
        found = _FOLDS[op](found, 0)
    return found if found.shape == x.shape else lax.slice(found, [0] * found.ndim, x.shape)


# ---- placements and shardings --------------------------------------------------------------------


def _cuts(layout: MeshLayout, ndim: int, kept: Sequence[Sequence[str]]) -> list[list[str]]:
    """Which dimensions of the mesh cut each dimension of a tensor. `kept`: those of the tensor as
    it lies, which stay where the layout does not say.

    Of several that cut one dimension the last cuts first: a tensor that is cut along `model`, and
    each of these parts along `data` (before it), is gathered along `data` without moving any part
    to another place. (Where terms are kept apart, as torch cuts: somebody may ask for one.)"""
    found: list[list[str]] = [[] for _ in range(ndim)]
    for name, p in zip(layout.mesh.names, layout.placements, strict=True):
        if isinstance(p, Shard):
            found[p.dim % max(ndim, 1)].append(name)
        elif p is None:
            for d, names in enumerate(kept):
                if name in names:
                    found[d].append(name)
    return found if layout.is_partial else [names[::-1] for names in found]


def _sharding(mesh: Mesh, entries: Sequence[Any]) -> NamedSharding:
    """Written in one way: those that mean the same are equal."""
    count = len(entries)
    while count and entries[count - 1] is None:
        count -= 1
    return NamedSharding(mesh, PartitionSpec(*entries[:count]))


def _entry(names: Sequence[str]) -> Any:
    return None if not names else names[0] if len(names) == 1 else tuple(names)


def _names(entry: Any) -> tuple[str, ...]:
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


def sharding_of(x: Any) -> NamedSharding | None:
    """Of an array or a `Spread`; None: it lies on no mesh."""
    found = getattr(x.array if type(x) is Spread else x, "sharding", None)
    if isinstance(found, NamedSharding):
        short = not found.spec or found.spec[-1] is not None
        return found if short else _sharding(found.mesh, found.spec)
    if found is None or len(found.device_set) == 1:
        return None
    # One that has no name is read as whole, on a mesh of the same devices.
    meshes = (m for m in _SHAPES if set(m.devices.flat) == found.device_set)
    return _sharding(next(meshes, next(iter(_SHAPES))), ())


def place_of(x: Any) -> Any:
    """All that a program depends on besides the layout in memory."""
    sharding = sharding_of(x)
    return (sharding, x.shape, x.terms, x.array.shape) if type(x) is Spread else sharding


def even(shape: Shape, cuts: Sequence[Sequence[str]], mesh: Mesh) -> Shape:
    """The shape that slices of one size make up."""
    found = []
    for n, names in zip(shape, cuts, strict=True):
        parts = math.prod(mesh.shape[name] for name in names)
        found.append(-(-n // parts) * parts)
    return tuple(found)


def mesh_of(places: Iterable[Any]) -> Mesh | None:
    """The mesh that is named first (`place_of`); None: nothing lies on one."""
    named = (p if isinstance(p, NamedSharding) else p[0] for p in places if p is not None)
    return next((sharding.mesh for sharding in named), None)


def is_planned(x: Any) -> bool:
    """Whether it has a shape only: it is of a plan."""
    return type(x) is jax.ShapeDtypeStruct


def laid(x: Any, sharding: Any) -> Any:
    """An array that lies so from now on."""
    if is_planned(x):
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)
    if not sharding.is_fully_addressable and not is_over_processes(x):
        return from_each(x, sharding)
    return jax.device_put(x, sharding)


def copied(x: Any) -> Any:
    """Another array with the same elements."""
    return x if is_planned(x) else jnp.copy(x)


def _padded(x: Any, shape: Shape) -> Any:
    if x.shape == shape:
        return x
    if is_planned(x):
        return jax.ShapeDtypeStruct(shape, x.dtype)
    return jnp.pad(x, [(0, b - a) for a, b in zip(x.shape, shape, strict=True)])


def spread(x: Any, layout: MeshLayout, held: Any = None) -> Any:
    """A whole array laid out over a mesh: what a cell holds. `held`: what it held, if the whole
    array was made of that."""
    mesh = jax_mesh(layout.mesh)
    held = x if held is None else held
    old, lead = sharding_of(held), len(held.terms) if type(held) is Spread else 0
    kept = [] if old is None or old.mesh != mesh else [_names(e) for e in old.spec[lead:]]
    cuts = _cuts(layout, x.ndim, kept)
    shape, large = x.shape, even(x.shape, cuts, mesh)
    entries = [_entry(names) for names in cuts]
    terms = _terms(layout)
    x = _padded(x, large)
    for name, op in reversed(terms):
        x = _as_terms(x, op, mesh.shape[name])
    entries = [*[name for name, _ in terms], *entries]
    array = laid(x, _sharding(mesh, entries))
    return array if array.shape == shape else Spread(array, shape, tuple(op for _, op in terms))


def spread_terms(stacked: Any, layout: MeshLayout) -> Spread:
    """Terms, stacked along leading dimensions, as what a cell holds."""
    mesh, terms = jax_mesh(layout.mesh), _terms(layout)
    shape = stacked.shape[len(terms) :]
    cuts = _cuts(layout, len(shape), [])
    stacked = _padded(stacked, (*stacked.shape[: len(terms)], *even(shape, cuts, mesh)))
    names = [*[name for name, _ in terms], *[_entry(cut) for cut in cuts]]
    array = laid(stacked, _sharding(mesh, names))
    return Spread(array, shape, tuple(op for _, op in terms))


def with_its_terms(held: Any, layout: MeshLayout) -> Spread | None:
    """What a cell holds, laid out anew, where terms stay terms: along the dimensions of the mesh
    that go on having them, while the others are reduced. None: there are none that stay."""
    old = layout_of(held) if type(held) is Spread and held.terms else None
    if old is None or old.mesh != layout.mesh:
        return None
    pairs = list(zip(old.placements, layout.placements, strict=True))
    wanted = MeshLayout(layout.mesh, tuple(a if b is None else b for a, b in pairs))
    stay = [b in (a, None) for a, b in pairs if isinstance(a, Partial)]
    if not any(stay) or sum(stay) != len(_terms(wanted)):
        return None

    def fewer(x: Any) -> Any:
        x = lax.slice(x, [0] * x.ndim, (*x.shape[: len(stay)], *held.shape))
        for d in reversed(range(len(stay))):
            if not stay[d]:
                x = _FOLDS[held.terms[d]](x, d)
        return x

    x = copied(held.array)
    return spread_terms(jax.eval_shape(fewer, x) if is_planned(x) else fewer(x), wanted)


def _terms(layout: MeshLayout) -> list[tuple[str, str]]:
    pairs = zip(layout.mesh.names, layout.placements, strict=True)
    found = [(name, p.reduce_op) for name, p in pairs if isinstance(p, Partial)]
    for _, op in found:
        if op not in _FOLDS:
            raise NotImplementedError(f"Partial({op!r}): one of {', '.join(_FOLDS)} was expected")
    return found


def _as_terms(x: Any, op: str, count: int) -> Any:
    """A value as terms of itself: the first is all of it, unless each may be."""
    if is_planned(x):
        return jax.ShapeDtypeStruct((count, *x.shape), x.dtype)
    if op not in ("sum", "product", "bxor"):
        return jnp.broadcast_to(x, (count, *x.shape))
    neutral = jnp.full((count - 1, *x.shape), op == "product", x.dtype)
    return jnp.concatenate([x[None], neutral])


def as_it_was(shape: Shape, was: Any) -> tuple[NamedSharding, Shape]:
    """The sharding, and the padded shape, for new elements of memory that was laid out so
    (`place_of`). What were terms is whole from now on."""
    sharding, lead = (was, 0) if isinstance(was, NamedSharding) else (was[0], len(was[2]))
    missing = len(shape) + lead - len(sharding.spec)
    spec = (*sharding.spec, *[None] * missing)[lead:]
    large = even(shape, [_names(e) for e in spec], sharding.mesh)
    return _sharding(sharding.mesh, spec), large


def as_before(x: Any, was: Any) -> Any:
    """New elements of memory that was laid out so, or nowhere: after a call."""
    if was is None:
        return x
    target, large = as_it_was(x.shape, was)
    if x.shape == large and sharding_of(x) == target:
        return x
    array = laid(_padded(x, large), target)
    return array if array.shape == x.shape else Spread(array, x.shape)


def stored_as(x: Any, was: Any) -> Any:
    """The same inside of a program."""
    if was is None:
        return x
    target, large = as_it_was(x.shape, was)
    found = constrained(_padded(x, large), target)
    return found if large == x.shape else Spread(found, x.shape)


def layout_of(x: Any) -> MeshLayout | None:
    """The placements of what a cell holds."""
    sharding = sharding_of(x)
    if sharding is None:
        return None
    shape = _SHAPES[sharding.mesh]
    terms = x.terms if type(x) is Spread else ()
    at = {name: d for d, entry in enumerate(sharding.spec) for name in _names(entry)}

    def of(name: str) -> Placement:
        d = at.get(name)
        if d is None:
            return Replicate()
        return Partial(terms[d]) if d < len(terms) else Shard(d - len(terms))

    return MeshLayout(shape, tuple(of(name) for name in shape.names))


def part(x: Any, k: int) -> np.ndarray[Any, Any]:
    """What the k-th device of the mesh has, without padding and as one term."""
    sharding = sharding_of(x)
    assert sharding is not None
    device = sharding.mesh.devices.flat[k]
    array, shape = (x.array, x.shape) if type(x) is Spread else (x, x.shape)
    piece = next((s for s in array.addressable_shards if s.device == device), None)
    if piece is None:
        raise RuntimeError(
            f"device {k} of the mesh is another process's, which alone sees its part: full_tensor()"
        )
    lead = array.ndim - len(shape)
    found = np.asarray(piece.data)[(0,) * lead]
    ends = [n - (at.start or 0) for n, at in zip(shape, piece.index[lead:], strict=True)]
    return found[tuple(slice(0, max(end, 0)) for end in ends)]


def of_local_parts(parts: Sequence[Any], shape: Shape, layout: MeshLayout) -> Any:
    """What a cell holds, of the parts on this process's devices in the mesh's order."""
    mesh, terms = jax_mesh(layout.mesh), _terms(layout)
    cuts = _cuts(layout, len(shape), [])
    mixed = [names[::-1] for names in cuts] if not terms else cuts  # (as torch cuts)
    large = even(shape, cuts, mesh)
    lead = [name for name, _ in terms]
    sharding = _sharding(mesh, [*lead, *[_entry(names) for names in mixed]])
    stacked = (*[mesh.shape[name] for name in lead], *large)
    room = sharding.shard_shape(stacked)
    wide = [
        np.pad(x, [(0, n - m) for n, m in zip(room[len(lead) :], x.shape, strict=True)])
        for x in parts
    ]
    array = of_parts(stacked, sharding, [x.reshape(room) for x in wide])
    array = laid(array, _sharding(mesh, [*lead, *[_entry(names) for names in cuts]]))
    return array if array.shape == shape else Spread(array, shape, tuple(op for _, op in terms))


# ---- inside of programs --------------------------------------------------------------------------


def constraint(layout: MeshLayout, ndim: int) -> NamedSharding | None:
    """What a program is told of a value; None: nothing. Where the layout does not say, XLA may
    cut dimensions further."""
    mesh = jax_mesh(layout.mesh)
    cuts = _cuts(layout, ndim, [])
    if None not in layout.placements:
        return _sharding(mesh, [_entry(names) for names in cuts])
    if not any(cuts):
        return None
    free = PartitionSpec.UNCONSTRAINED
    return NamedSharding(mesh, PartitionSpec(*[_entry(names) or free for names in cuts]))


def constrained(x: Any, sharding: NamedSharding | None) -> Any:
    """An array of a program that is to lie so; None: as XLA likes."""
    return x if sharding is None else lax.with_sharding_constraint(x, sharding)


def cut_along(x: Any, mesh: Mesh | None, count: int) -> Any:
    """A value of a program of which XLA may cut the first dimensions alone, so many of them."""
    if mesh is None:
        return x
    free = [PartitionSpec.UNCONSTRAINED] * count
    return constrained(x, NamedSharding(mesh, PartitionSpec(*free, *[None] * (x.ndim - count))))
