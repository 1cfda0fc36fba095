"""Ops on meta tensors: shapes, dtypes and strides as the real run gives them."""

from typing import Any

import pytest

import lucerne

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

from tests.conformance import catalog, tree  # noqa: E402
from tests.conformance.bridge import lucerne_bridge  # noqa: E402
from tests.conformance.context import Context, quiet  # noqa: E402
from tests.conformance.rebind import MissingError  # noqa: E402

SAMPLES = 3

# Results whose shape (or existence) hangs on values: torch refuses these on meta tensors, too.
BY_VALUE = {
    "nonzero", "nonzero_static", "masked_select", "unique", "unique_consecutive", "item", "tolist",
    "argwhere", "bincount", "repeat_interleave", "histc", "equal", "allclose", "multinomial",
    "__getitem__", "to_sparse", "bernoulli", "normal", "combinations",
    "as_strided.partial_views",  # reads beyond the view, which a meta copy has not
}  # fmt: skip
# Only some samples of these read values: tensors as bounds, masks as indices, a copy to the host.
SOMETIMES = {"linspace.tensor_overload", "to", "narrow", "index_put", "nn.functional.one_hot"}


def meta_failures(entry: Any) -> list[str]:
    """What differs between the real and the meta run of a few samples."""
    context = Context(entry, lucerne_bridge())
    try:
        context.function  # noqa: B018
    except MissingError:
        return []
    dtype = entry.dtype
    failures = []
    for label, sample in catalog.samples(entry, dtype, limit=SAMPLES):
        carried = context.bridge.carry_sample(sample)
        with quiet():
            try:
                real = context.call(carried)
            except Exception:  # another test's business
                continue
            try:
                shadow = context.function(
                    *_on_meta((carried.input, *carried.args)), **_meta_kw(carried)
                )
            except NotImplementedError as error:
                if entry.name not in SOMETIMES:
                    failures.append(f"{entry.name} {label}: {error}")
                continue
            except Exception as error:
                failures.append(f"{entry.name} {label}: {type(error).__name__}: {str(error)[:120]}")
                continue
        want, got = _facts(real), _facts(shadow)
        if want != got:
            failures.append(f"{entry.name} {label}: real {want}, meta {got}")
    return failures


def _on_meta(x: Any) -> Any:
    return tree.map_leaves(lambda t: t.to("meta") if isinstance(t, lucerne.Tensor) else t, x)


def _meta_kw(carried: Any) -> dict[str, Any]:
    found: dict[str, Any] = _on_meta(carried.kwargs)
    return {k: "meta" if k == "device" else v for k, v in found.items()}


def _facts(result: Any) -> list[Any]:
    return [
        (tuple(t.shape), str(t.dtype), t.stride() if t.numel() else ())
        for t in tree.leaves(result)
        if isinstance(t, lucerne.Tensor)
    ]


def _entries() -> list[Any]:
    found = list(catalog.entries_of(["T0"]))
    return [e for e in found if e.name not in BY_VALUE and e.op.name not in BY_VALUE]


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(k, marks=pytest.mark.nightly) for k in (1, 2, 3))]
)
def test_meta_runs_agree_with_real_runs(first: int) -> None:
    failures = [line for entry in _entries()[first::4] for line in meta_failures(entry)]
    assert not failures, f"{len(failures)} differ\n" + "\n".join(failures)


def test_meta_tensors_have_no_values() -> None:
    x = lucerne.zeros(2, 3, device="meta")
    assert (x @ x.T).shape == (2, 2)
    assert x.untyped_storage().nbytes() == 24
    for attempt in (x.tolist, x.sum().item, x.numpy, lambda: x.cpu(), lambda: bool(x[0, 0])):
        with pytest.raises((NotImplementedError, RuntimeError, TypeError)):
            attempt()


def test_meta_tensors_differentiate() -> None:
    x = lucerne.zeros(2, 3, device="meta", requires_grad=True)
    (x.exp().sum(0) * 2).mean().backward()
    assert x.grad.shape == (2, 3)
    assert x.grad.device.type == "meta"
