"""Graphs for tests: functions traced on tensors without bytes, run on the reference backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import lucerne
from lucerne._src.base.device import device as Device
from lucerne._src.ir.graph import Graph, verify
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.eager.composite_graph import CompositeRecorder
from lucerne._src.transforms import interpret

CPU = Device("cpu")


def meta(
    *shape: int, dtype: Any = lucerne.float32, strides: tuple[int, ...] | None = None
) -> TensorMeta:
    return make_meta(dtype, shape, strides, CPU)


def traced(
    fn: Callable[..., Any], *metas: TensorMeta, grad: Sequence[int] = (), writes: Any = ()
) -> Graph:
    """The graph of `fn`; inputs in `grad` need gradients. Composites arrive as primitives.

    `writes`: pairs (input, position in the outputs) of what the function overwrites; those outputs
    are taken away.
    """
    recorder = CompositeRecorder(CPU)
    with recorder:
        given = [recorder.input(m) for m in metas]
        for k in grad:
            given[k].requires_grad_()
        found = fn(*given)
        results = [found] if isinstance(found, TensorBase) else list(found)
        outputs = [recorder.value(r) for r in results]
    graph = recorder.graph
    moved = {position for _, position in writes}
    graph.outputs = tuple(v for k, v in enumerate(outputs) if k not in moved)
    graph.writes = [(graph.inputs[i], outputs[position]) for i, position in writes]
    verify(graph)
    return graph


def arrays(graph: Graph, seed: int = 0, special: bool = True) -> list[np.ndarray]:
    """Values for the inputs: random, with zeros of both signs, infinities and nans among them."""
    rng = np.random.default_rng(seed)
    return [_array(v.meta, rng, special) for v in graph.inputs]


def _array(meta: TensorMeta, rng: np.random.Generator, special: bool) -> np.ndarray:
    shape, storage = tuple(meta.shape), meta.dtype.storage
    if meta.dtype.name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if meta.dtype.name == "bfloat16":
        return (_floats(shape, rng, special).view(np.uint32) >> 16).astype(np.uint16)
    if meta.dtype.is_floating_point:
        return _floats(shape, rng, special).astype(storage)
    if meta.dtype.is_complex:
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(storage)
    return rng.integers(0, 7, shape).astype(storage)


def _floats(shape: tuple[int, ...], rng: np.random.Generator, special: bool) -> np.ndarray:
    made = rng.normal(size=shape).astype(np.float32)
    if special and made.size:
        odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0], np.float32)
        chosen = rng.random(shape) < 0.3
        made = np.where(chosen, rng.choice(odd, shape), made).astype(np.float32)
    return np.ascontiguousarray(made).reshape(shape)


def results(graph: Graph, inputs: Sequence[Any], expand: Any = None) -> list[np.ndarray]:
    """What the graph gives: outputs, then written values."""
    outputs, writes = interpret.run(graph, inputs, expand)
    return [np.array(x.array) for x in (*outputs, *writes)]


def assert_same_bits(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> None:
    """Equal bits; any nan equals any nan."""
    assert len(got) == len(want)
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.shape == b.shape, f"result {k}: {a.shape} is not {b.shape}"
        assert a.dtype == b.dtype, f"result {k}: {a.dtype} is not {b.dtype}"
        nans = np.isnan(a) & np.isnan(b) if a.dtype.kind in "fc" else np.zeros(a.shape, bool)
        x, y = (np.ascontiguousarray(t).reshape(-1).view(np.uint8) for t in (a, b))
        size = max(a.itemsize, 1)
        same = (x.reshape(-1, size) == y.reshape(-1, size)).all(1).reshape(a.shape)
        assert (same | nans).all(), f"result {k}: {a} is not {b}"


def assert_close(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> None:
    """Equal up to rounding of float32."""
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def names(graph: Graph) -> list[str]:
    return [n.op.qualified for n in graph.nodes]


def assert_sound(new: Graph, old: Graph) -> None:
    """A pass may change nodes, but not the graph's face to the outside."""
    verify(new)
    assert [v.meta for v in new.inputs] == [v.meta for v in old.inputs]
    assert len(new.outputs) == len(old.outputs)
    for a, b in zip(new.outputs, old.outputs, strict=True):
        assert a.meta is b.meta, f"{a.meta} is not {b.meta}"
    targets = [t.index for t, _ in old.writes]
    assert [t.index for t, _ in new.writes] == targets or len(new.writes) < len(targets)
    memory = _memory(new)
    assert len(set(memory)) >= len(set(_memory(old))), "two results share memory now"


def _memory(graph: Graph) -> list[int]:
    """For each result, which memory it lies in."""
    root: dict[int, int] = {}
    for n in graph.nodes:
        if n.op.kind == "view":
            source = n.args[0].index
            root.update((v.index, root.get(source, source)) for v in n.outputs)
    found = (*graph.outputs, *(v for _, v in graph.writes))
    return [root.get(v.index, v.index) for v in found]
