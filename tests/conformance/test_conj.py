"""Every op of PyTorch's database that takes complex numbers: a conjugate view is as good an
operand, and as good a target of an in-place method, as a tensor with its values in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import lucerne

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402

from tests.conformance.bridge import Bridge, NotCarriedError  # noqa: E402
from tests.conformance.rebind import MissingError  # noqa: E402

BRIDGE = Bridge(lucerne)
OPS = [
    op
    for op in op_db
    if torch.complex64 in op.supported_dtypes("cpu") and not op.name.startswith("jiterator")
]
MOST_SAMPLES = 2
REFUSED = ("view_as_real",)
"""A conjugate has no such view."""
PLACED = ("as_strided", "empty", "new_empty", "resize_", "resize_as_")
"""What they give depends on the memory, not on the values."""
RESHAPES = ("as_strided", "squeeze", "unsqueeze", "transpose", "t", "swapaxes", "resize_")
"""In place they change the shape of the tensor: nothing is written."""
RANDOM = ("normal", "uniform", "cauchy", "exponential", "geometric", "log_normal", "bernoulli")


def conjugated(x: Any) -> Any:
    """A tensor with the same values, whose memory holds their conjugates."""
    strided = isinstance(x, lucerne.Tensor) and str(x.layout) == "torch.strided"
    return x.detach().conj_physical().conj() if strided and x.is_complex() else x


def assert_same(found: Any, want: Any) -> None:
    for a, b in zip(tree_leaves(found), tree_leaves(want), strict=True):
        if isinstance(b, lucerne.Tensor):
            got, expected = (x.detach().to_dense().resolve_conj().resolve_neg() for x in (a, b))
            lucerne.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4, equal_nan=True)


def call(fn: Any, *args: Any, **kwargs: Any) -> Any:
    lucerne.manual_seed(0)
    result = fn(*args, **kwargs)
    return tuple(result) if isinstance(result, (tuple, list)) else result


def samples(op: Any) -> Any:
    for i, sample in enumerate(op.sample_inputs("cpu", torch.complex64)):
        if i == MOST_SAMPLES:
            return
        yield BRIDGE.carry_sample(sample)


def rows(ops: list[Any]) -> list[Any]:
    """Some of them daily, all of them at night."""
    return [
        pytest.param(
            op, id=f"{op.name}-{op.variant_test_name}", marks=[pytest.mark.nightly] * bool(k % 5)
        )
        for k, op in enumerate(ops)
    ]


@pytest.mark.parametrize("op", rows(OPS))
def test_operands(op: Any) -> None:
    if op.name in (*REFUSED, *PLACED) or "empty" in op.name:
        pytest.skip("refused, or it depends on the memory")
    try:
        fn = BRIDGE.resolve(SimpleNamespace(op=op))
        for x in samples(op):
            want = call(fn, x.input, *x.args, **x.kwargs)
            inputs = tree_map(conjugated, (x.input, tuple(x.args), dict(x.kwargs)))
            assert_same(call(fn, inputs[0], *inputs[1], **inputs[2]), want)
    except (MissingError, NotCarriedError, NotImplementedError) as error:
        pytest.skip(str(error))


IN_PLACE = [
    op for op in OPS if op.inplace_variant is not None and op.name not in (*RESHAPES, *RANDOM)
]


@pytest.mark.parametrize("op", rows(IN_PLACE))
def test_targets(op: Any) -> None:
    fn = BRIDGE.resolve_inplace(SimpleNamespace(op=op))
    for x in samples(op):
        try:
            want = call(fn, x.input.detach().clone(), *x.args, **x.kwargs)
        except RuntimeError:  # the result has another shape or type
            continue
        memory = x.input.detach().conj_physical()
        args, kwargs = tree_map(conjugated, (tuple(x.args), dict(x.kwargs)))
        call(fn, memory.conj(), *args, **kwargs)
        assert_same(memory.conj(), want)
