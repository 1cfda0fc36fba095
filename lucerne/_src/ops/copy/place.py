"""Values that lie elsewhere on a mesh: the same numbers, another placement.

On a device without meshes both are copies: nothing but placements makes them necessary.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.base import layout as lo
from lucerne._src.ir.define import structural
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy.cast import preserved_strides


class Meshes:
    """Whether tensors lie on meshes at all: until then nobody asks what they inherit."""

    devices: frozenset[str] = frozenset()
    """The types of devices that have some."""


def _own_memory(input: TensorMeta) -> TensorMeta:
    return input.like(strides=preserved_strides(input, lo.preserve_format))


def _placed_meta(input: TensorMeta, layout: Any) -> TensorMeta:
    return _own_memory(input)


@structural(
    internal=True,
    meta=_placed_meta,
    vjp={"input": lambda g, layout: _gradient(g, layout)},
    out=False,
    linear=True,
)
def placed(input: Tensor, layout: Any) -> Tensor:
    """The values of `input`, laid out over a mesh (`MeshLayout`); None: on no mesh."""


def _gradient(g: Tensor, layout: Any) -> Tensor:
    """A gradient lies as its value does; it is no sum of terms, though that may be one."""
    return g if layout is None or layout.is_partial else placed(g, layout)


def _like_meta(other: TensorMeta, input: TensorMeta) -> TensorMeta:
    return _own_memory(input)


@structural(internal=True, meta=_like_meta, vjp={"input": lambda g: g}, out=False)
def placed_like(other: Tensor, input: Tensor) -> Tensor:
    """The values of `input`, laid out as `other` is, which has the same shape."""


def inherit(made: Any, source: Any) -> Any:
    """`made`, placed as `source` is, if meshes are in use: gradients and `*_like` lie as what they
    are of."""
    if not Meshes.devices or made.device.type not in Meshes.devices:
        return made
    if source.device != made.device or tuple(source.shape) != tuple(made.shape):
        return made
    return placed_like(source, made)
