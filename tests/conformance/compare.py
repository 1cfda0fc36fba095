"""Compare what one call gave in torch and in the other framework."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.conformance import tree
from tests.conformance.bridge import Bridge
from tests.conformance.result import Sample, Tally
from tests.conformance.tolerance import (
    EXACT,
    VALUES,
    Tolerance,
    Tolerances,
    distance,
    is_inexact,
    plain,
    within_float64_rule,
)

WIDER = {
    torch.float32: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}
NARROW = tuple(WIDER)

Place = int | str  # which leaf: for messages, and for finding it in the float64 results
Truth = Callable[[], Any]  # the same results computed by torch in float64


@dataclass(frozen=True)
class Policy:
    """How values are judged."""

    tolerances: Tolerances = field(default_factory=lambda: VALUES)
    exact: bool = False
    undefined: bool = False  # values mean nothing
    truth: Truth | None = None

    def tolerance(self, dtype: torch.dtype) -> Tolerance:
        return EXACT if self.exact else self.tolerances.get(dtype, EXACT)


class Comparison:
    """The checks of one sample's results, noted in its record."""

    def __init__(self, sample: Sample, bridge: Bridge, policy: Policy) -> None:
        self.sample = sample
        self.bridge = bridge
        self.policy = policy

    def outputs(self, expected: Any, got: Any) -> bool:
        """Structure, then type, shape, dtype and value of every leaf."""
        want, have = tree.outline(expected), tree.outline(got)
        if not self.sample.expect(want == have, "structure", lambda: f"{want} got {have}"):
            return False
        pairs = zip(tree.leaves(expected), tree.leaves(got), strict=True)
        results = [self.leaf(i, left, right) for i, (left, right) in enumerate(pairs)]
        return all(results)

    def leaf(self, place: Place, expected: Any, got: Any) -> bool:
        if not isinstance(expected, torch.Tensor):
            return self._python_value(place, expected, got)
        if not self._same_kind(place, expected, got):
            return False
        return self.policy.undefined or self.value(place, expected, got)

    def value(self, place: Place, expected: torch.Tensor, got: Any, check: str = "value") -> bool:
        """Numbers only; shape and dtype are known to agree."""
        want, have = plain(expected), self.bridge.from_other(got)
        tolerance = self.policy.tolerance(want.dtype)
        worst = distance(want, have, tolerance)
        if worst <= 1.0:
            return self.sample.expect(True, check, "")
        if self._accepted_by_float64(place, want, have, tolerance):
            self.sample.by_float64 = True
            return self.sample.expect(True, check, "")
        text = f"[{place}] {want.dtype} off by {worst:.3g} x tolerance: {_excerpt(want, have)}"
        return self.sample.expect(False, check, text)

    def _same_kind(self, place: Place, expected: torch.Tensor, got: Any) -> bool:
        expect = self.sample.expect
        if not expect(
            self.bridge.is_tensor(got), "type", lambda: f"[{place}] not a tensor: {type(got)}"
        ):
            return False
        want, have = tuple(expected.shape), tuple(got.shape)
        same_shape = expect(want == have, "shape", lambda: f"[{place}] {want} got {have}")
        want_dtype, have_dtype = str(expected.dtype), str(got.dtype)
        same_dtype = expect(
            want_dtype == have_dtype, "dtype", lambda: f"[{place}] {want_dtype} got {have_dtype}"
        )
        same_layout = expect(
            str(expected.layout) == str(got.layout),
            "layout",
            lambda: f"[{place}] {expected.layout} got {got.layout}",
        )
        return same_shape and same_dtype and same_layout

    def _accepted_by_float64(
        self, place: Place, want: torch.Tensor, have: torch.Tensor, tolerance: Tolerance
    ) -> bool:
        if self.policy.truth is None or self.policy.exact or not is_inexact(want.dtype):
            return False
        if not isinstance(place, int):
            return False
        try:
            truth = tree.leaves(self.policy.truth())[place]
        except Exception:  # no float64 form of this sample: the plain rule decides
            return False
        if not isinstance(truth, torch.Tensor):
            return False
        return within_float64_rule(plain(truth), want, have, tolerance)

    def _python_value(self, place: Place, expected: Any, got: Any) -> bool:
        want = self.bridge.convert(expected)
        same = type(want) is type(got) and _equal(want, got)
        return self.sample.expect(
            same, "python value", lambda: f"[{place}] {_short(want)} got {_short(got)}"
        )


def compare_ambiguous(comparison: Comparison, sample: Any, expected: Any, got: Any) -> bool:
    """Values only after the sample's own function has removed the free signs."""
    raw = Comparison(comparison.sample, comparison.bridge, Policy(undefined=True))
    if not raw.outputs(expected, got):
        return False
    process = comparison.bridge.rebind(sample.output_process_fn_grad)
    return comparison.outputs(sample.output_process_fn_grad(expected), process(got))


def compare_strides(tally: Tally, label: str, expected: Any, got: Any, bridge: Bridge) -> None:
    """Memory order of every output with elements; each output counts as one sample."""
    left, right = tree.leaves(expected), tree.leaves(got)
    for i, want in enumerate(left):
        if not isinstance(want, torch.Tensor) or not _has_strides(want):
            continue
        with tally.sample(f"{label}[{i}]") as sample:
            have: Any = right[i] if len(left) == len(right) else None
            if not bridge.is_tensor(have) or tuple(have.shape) != tuple(want.shape):
                sample.expect(False, "stride", "no such output")
                continue
            message = f"shape {tuple(want.shape)}: {want.stride()} got {tuple(have.stride())}"
            sample.expect(significant_strides(want) == significant_strides(have), "stride", message)


def significant_strides(t: Any) -> tuple[int, ...]:
    """Strides of the dimensions that have more than one element."""
    return tuple(step for step, size in zip(t.stride(), t.shape, strict=True) if size > 1)


def compare_aliases(
    sample: Sample, bridge: Bridge, inputs: list[torch.Tensor], ours: list[Any], outs: Any, got: Any
) -> None:
    """A view stays a view: outputs share memory with the same inputs on both sides."""
    torch_ids = [_storage_id(t) for t in inputs]
    other_ids = [bridge.storage_id(t) for t in ours]
    pairs = zip(tree.leaves(outs), tree.leaves(got), strict=True)
    for i, (left, right) in enumerate(pairs):
        if not isinstance(left, torch.Tensor) or not bridge.is_tensor(right):
            continue
        want = _matches(_storage_id(left), torch_ids)
        have = _matches(bridge.storage_id(right), other_ids)
        sample.expect(
            want == have,
            "alias",
            f"[{i}] shares memory with inputs {want}, got {have}",
        )


def widen(sample: Any) -> Any:
    """A sample in float64 (complex128), made before an op can change its inputs."""
    return sample.transform(_widen_leaf)


def _widen_leaf(x: Any) -> Any:
    if isinstance(x, torch.dtype):
        return WIDER.get(x, x)
    wide = x.detach().to(WIDER.get(x.dtype, x.dtype), copy=True)
    return wide.requires_grad_(x.requires_grad)


def _has_strides(t: torch.Tensor) -> bool:
    return t.layout == torch.strided and t.numel() > 0


def _storage_id(t: torch.Tensor) -> int | None:
    if not _has_strides(t) or t.device.type == "meta":
        return None
    return t.untyped_storage().data_ptr()


def _matches(storage: int | None, others: list[int | None]) -> list[int]:
    if storage is None:
        return []
    return [i for i, other in enumerate(others) if other == storage]


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float):
        return math.isclose(a, b, rel_tol=1e-6) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)


def _short(x: Any) -> str:
    """A value on one line."""
    text = " ".join(repr(x).split())
    return f"{text[:80]} ({type(x).__name__})"


def _excerpt(want: torch.Tensor, have: torch.Tensor) -> str:
    """The first element that differs most, as both sides have it."""
    left, right = want.reshape(-1), have.reshape(-1)
    if is_inexact(want.dtype):
        wide = torch.complex128 if want.dtype.is_complex else torch.float64
        gap = (left.to(wide) - right.to(wide)).abs().nan_to_num(nan=torch.inf)
    else:
        gap = (left != right).to(torch.float64)
    at = int(gap.argmax())
    return f"at {at}: {left[at].item()!r} got {right[at].item()!r}"
