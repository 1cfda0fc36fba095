"""Values that lie elsewhere on a mesh: the same numbers, another placement.

Both are composites: on a device without meshes they are copies, one with meshes takes them whole.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.base import layout as lo
from lucerne._src.ir.define import composite
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy.cast import clone_as, preserved_strides


class Meshes:
    """Whether tensors lie on meshes at all: until then nobody asks what they inherit."""

    devices: frozenset[str] = frozenset()
    """The types of devices that have some."""


def _own_memory(input: TensorMeta) -> TensorMeta:
    return input.like(strides=preserved_strides(input, lo.preserve_format))


def _placed_meta(input: TensorMeta, layout: Any) -> TensorMeta:
    return _own_memory(input)


@composite(
    internal=True,
    meta=_placed_meta,
    vjp={"input": lambda g, layout: _gradient(g, layout)},
    out=False,
)
def placed(input: Tensor, layout: Any) -> Tensor:
    """The values of `input`, laid out over a mesh (`MeshLayout`); None: on no mesh."""
    return clone_as(input, lo.preserve_format)


def _gradient(g: Tensor, layout: Any) -> Tensor:
    """A gradient lies as its value does; it is no sum of terms, though that may be one."""
    return g if layout is None or layout.is_partial else placed(g, layout)


def _like_meta(other: TensorMeta, input: TensorMeta) -> TensorMeta:
    return _own_memory(input)


@composite(internal=True, meta=_like_meta, vjp={"input": lambda g: g}, out=False)
def placed_like(other: Tensor, input: Tensor) -> Tensor:
    """The values of `input`, laid out as `other` is, which has the same shape."""
    return clone_as(input, lo.preserve_format)


def inherit(made: Any, source: Any) -> Any:
    """`made`, placed as `source` is, if meshes are in use: gradients and `*_like` lie as what they
    are of."""
    if not Meshes.devices or made.device.type not in Meshes.devices:
        return made
    if source.device != made.device or tuple(source.shape) != tuple(made.shape):
        return made
    return placed_like(source, made)
