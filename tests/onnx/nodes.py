"""The node tests of onnx.backend.test, default domain: each model is loaded and run."""

from __future__ import annotations

import itertools
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import lucerne
from lucerne.export.onnx.reading.file import Source, array_of, as_tensor
from lucerne.export.onnx.reading.flow import Sequence as TensorSequence

DRAWN = {"Bernoulli", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike"}
"""Operators whose numbers no two engines draw alike: that they run, and their shapes, is tried."""


def cases() -> Iterator[Any]:
    """The tests whose nodes are all of the default domain."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    for case in found:
        if case.model is not None and not {n.domain for n in case.model.graph.node} - {""}:
            yield case


def given(x: Any) -> Any:
    """A value of a test as the module takes it."""
    if isinstance(x, list):
        return TensorSequence(given(y) for y in x)
    return None if x is None else as_tensor(_array(x))


def _array(x: Any) -> Any:
    """Types that NumPy lacks come as in a file."""
    return array_of(x, Source(None)) if hasattr(x, "data_type") else x


def check(case: Any) -> None:
    """Raise if a model does not give what its test expects."""
    net = lucerne.onnx.load(case.model)
    drawn = any(n.op_type in DRAWN for n in case.model.graph.node)
    for inputs, wants in case.data_sets:
        with lucerne.no_grad():
            found = net(*[given(x) for x in inputs])
        gots = found if isinstance(found, tuple) else (found,)
        for want, got in zip(wants, gots, strict=True):
            _same(want, got, case.rtol, max(case.atol, 1e-7), drawn)


def _same(want: Any, got: Any, rtol: float, atol: float, drawn: bool) -> None:
    if isinstance(want, list):
        assert len(want) == len(got), f"{len(got)} elements instead of {len(want)}"
        for w, g in zip(want, got, strict=True):
            _same(w, g, rtol, atol, drawn)
        return
    like = as_tensor(_array(want))
    assert tuple(like.shape) == tuple(got.shape), f"{tuple(got.shape)} instead of {like.shape}"
    assert like.dtype == got.dtype, f"{got.dtype} instead of {like.dtype}"
    if not drawn:
        a, b = (t.to(lucerne.float64).detach().numpy() for t in (got, like))
        if like.dtype in (lucerne.float16, lucerne.bfloat16):
            rtol, atol = max(rtol, 1e-2), max(atol, 1e-2)
        np.testing.assert_allclose(a, b, rtol, atol)


def run(names: Sequence[str], every: int = 1, first: int = 0) -> int:
    """Print what fails, by operator, and the share that passes; `every`: one of so many tests."""
    began, bad, total = time.perf_counter(), Counter[str](), 0
    for case in itertools.islice(cases(), first, None, every):
        if names and not any(name in case.name for name in names):
            continue
        total += 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check(case)
        except Exception as error:
            kind = case.model.graph.node[0].op_type
            text = str(error).strip().replace("\n", " ")[:170]
            bad[kind] += 1
            print(f"{case.name}: {type(error).__name__}: {text}", flush=True)
    good = total - sum(bad.values())
    print(f"failing, by the first operator: {dict(bad.most_common())}")
    print(
        f"{good} of {total} node tests of the default domain ({100 * good / max(1, total):.1f} %), "
        f"{time.perf_counter() - began:.0f} s"
    )
    return int(good < 0.9 * total)
