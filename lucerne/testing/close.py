"""`assert_close`: two results agree within their dtype's tolerance, or a message says where not."""

from __future__ import annotations

import cmath
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.tensor.interop.construct import as_tensor, build
from lucerne._src.tensor.tensor import Tensor

_TOLERANCES = {
    dt.float16: (0.001, 1e-5), dt.bfloat16: (0.016, 1e-5), dt.float32: (1.3e-6, 1e-5),
    dt.float64: (1e-7, 1e-7), dt.complex32: (0.001, 1e-5), dt.complex64: (1.3e-6, 1e-5),
    dt.complex128: (1e-7, 1e-7),
}  # fmt: skip
_ALLCLOSE = {dt.float16: (1e-3, 1e-3), dt.float32: (1e-4, 1e-5), dt.float64: (1e-5, 1e-8)}
_NUMBERS = {int: dt.int64, float: dt.float64, complex: dt.complex128}

Message = str | Callable[[str], str] | None


class _UnequalError(Exception):
    """Found a difference: what to raise, saying what, at which place of nested containers."""

    early = False

    def __init__(self, kind: type[Exception], text: str, at: tuple[Any, ...]) -> None:
        super().__init__(text)
        self.kind, self.text, self.at = kind, text, at

    def error(self, msg: Message) -> Exception:
        if self.early:
            msg = None
        if isinstance(msg, str):
            return self.kind(msg)
        text = self.text
        if self.at:
            text += f"\n\nThe failure occurred for item {''.join(str([i]) for i in self.at)}"
        return self.kind(msg(text) if callable(msg) else text)


class _IncomparableError(_UnequalError):
    """Another structure: the user's message, which is about values, is not used."""

    early = True


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: Message = None,
) -> None:
    """Raise AssertionError unless `|actual - expected| <= atol + rtol * |expected|` everywhere.

    Numbers, tensors, arrays, and lists and dictionaries of them.

    >>> import lucerne
    >>> lucerne.testing.assert_close(lucerne.tensor([1.0, 2.0]), lucerne.tensor([1.0, 2.0000001]))
    """
    __tracebackhide__ = True
    checks = _Checks(
        allow_subclasses,
        rtol,
        atol,
        equal_nan,
        check_device,
        check_dtype,
        check_layout,
        check_stride,
    )
    try:
        checks.compare(actual, expected, ())
    except _UnequalError as found:
        raise found.error(msg) from None


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """The old form: looser, and dtypes may differ."""
    warnings.warn(
        "`torch.testing.assert_allclose()` is deprecated since 1.12 and will be removed in a "
        "future release. Please use `torch.testing.assert_close()` instead.",
        FutureWarning,
        stacklevel=2,
    )
    if not isinstance(actual, Tensor):
        actual = build(actual, None, None)
    if not isinstance(expected, Tensor):
        expected = build(expected, actual.dtype, None)
    if rtol is None and atol is None:
        pairs = [_ALLCLOSE.get(t.dtype, (0.0, 0.0)) for t in (actual, expected)]
        rtol, atol = max(p[0] for p in pairs), max(p[1] for p in pairs)
    assert_close(
        actual,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_dtype=False,
        msg=msg or None,
    )


class _Checks:
    """What to compare and how strictly."""

    def __init__(
        self, subclasses: bool, rtol: float | None, atol: float | None, equal_nan: bool,
        device: bool, dtype: bool, layout: bool, stride: bool,
    ) -> None:  # fmt: skip
        self.subclasses, self.rtol, self.atol, self.equal_nan = subclasses, rtol, atol, equal_nan
        self.device, self.dtype, self.layout, self.stride = device, dtype, layout, stride

    def compare(self, actual: Any, expected: Any, at: tuple[Any, ...]) -> None:
        a, e = actual, expected
        if all(isinstance(x, Sequence) and not isinstance(x, str) for x in (a, e)):
            return self._sequences(a, e, at)
        if isinstance(a, Mapping) and isinstance(e, Mapping):
            return self._mappings(a, e, at)
        if a is None or e is None:
            if a is not e:
                raise _UnequalError(AssertionError, f"None mismatch: {a} is not {e}", at)
            return None
        if _all(bool | np.bool_, a, e):
            if bool(a) is not bool(e):
                raise _UnequalError(
                    AssertionError, f"Booleans mismatch: {bool(a)} is not {bool(e)}", at
                )
            return None
        if _all(int | float | complex | np.number, a, e):
            return self._numbers(_plain(a), _plain(e), at)
        return self._tensors(*self._as_tensors(a, e, at), at)

    # -- containers ------------------------------------------------------------------------------

    def _sequences(self, a: Sequence[Any], e: Sequence[Any], at: tuple[Any, ...]) -> None:
        if len(a) != len(e):
            text = f"The length of the sequences mismatch: {len(a)} != {len(e)}"
            raise _IncomparableError(AssertionError, text, at)
        for i in range(len(a)):
            self.compare(a[i], e[i], (*at, i))

    def _mappings(self, a: Mapping[Any, Any], e: Mapping[Any, Any], at: tuple[Any, ...]) -> None:
        if set(a) != set(e):
            text = (
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {sorted(set(e) - set(a))}\n"
                f"Additional keys in the actual mapping: {sorted(set(a) - set(e))}"
            )
            raise _IncomparableError(AssertionError, text, at)
        keys = list(a)
        try:
            keys.sort()
        except TypeError:
            pass  # keys of several types have no order: any will do
        for key in keys:
            self.compare(a[key], e[key], (*at, key))

    # -- numbers ---------------------------------------------------------------------------------

    def _tolerances(self, kinds: Sequence[dt.dtype], at: tuple[Any, ...]) -> tuple[float, float]:
        if (self.rtol is None) != (self.atol is None):
            missing = "rtol" if self.rtol is None else "atol"
            text = (
                f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}."
            )
            raise _IncomparableError(ValueError, text, at)
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        pairs = [_TOLERANCES.get(kind, (0.0, 0.0)) for kind in kinds]
        return max(p[0] for p in pairs), max(p[1] for p in pairs)

    def _numbers(self, a: Any, e: Any, at: tuple[Any, ...]) -> None:
        rtol, atol = self._tolerances([_NUMBERS[type(a)], _NUMBERS[type(e)]], at)
        if self.dtype and type(a) is not type(e):
            text = f"The (d)types do not match: {type(a)} != {type(e)}."
            raise _UnequalError(AssertionError, text, at)
        if a == e or (self.equal_nan and cmath.isnan(a) and cmath.isnan(e)):
            return
        gap = abs(a - e)
        if cmath.isfinite(gap) and gap <= atol + rtol * abs(e):
            return
        raise _UnequalError(AssertionError, _number_text(a, e, rtol, atol), at)

    # -- tensors ---------------------------------------------------------------------------------

    def _as_tensors(self, a: Any, e: Any, at: tuple[Any, ...]) -> tuple[Any, Any]:
        related = isinstance(a, type(e)) or isinstance(e, type(a))
        if related and (self.subclasses or type(a) is type(e)):
            try:
                return as_tensor(a), as_tensor(e)
            except (TypeError, ValueError, RuntimeError):
                pass  # not tensor-like: the message below says so
        _refuse(a, e, at)

    def _tensors(self, a: Any, e: Any, at: tuple[Any, ...]) -> None:
        rtol, atol = self._tolerances([a.dtype, e.dtype], at)
        self._attributes(a, e, at)
        a, e = _alike(a, e)
        if a.layout is not lo.strided:
            a, e = a.to_dense(), e.to_dense()
        a, e = a.detach(), e.detach()
        matches = a.isclose(e, rtol=rtol, atol=atol, equal_nan=self.equal_nan)
        if not bool(matches.all()):
            raise _UnequalError(AssertionError, _tensor_text(a, e, matches, rtol, atol), at)

    def _attributes(self, a: Any, e: Any, at: tuple[Any, ...]) -> None:
        strides = self.stride and a.layout is lo.strided and a.stride() != e.stride()
        for name, differ, x, y in (
            ("shape", a.shape != e.shape, a.shape, e.shape),
            ("layout", self.layout and a.layout is not e.layout, a.layout, e.layout),
            ("stride()", strides, strides and a.stride(), strides and e.stride()),
            ("device", self.device and a.device != e.device, a.device, e.device),
            ("dtype", self.dtype and a.dtype is not e.dtype, a.dtype, e.dtype),
        ):
            if differ:
                text = f"The values for attribute '{name}' do not match: {x} != {y}."
                raise _UnequalError(AssertionError, text, at)


def _all(kinds: Any, a: Any, e: Any) -> bool:
    return isinstance(a, kinds) and isinstance(e, kinds)


def _plain(x: Any) -> Any:
    x = x.item() if isinstance(x, np.generic) else x
    return int(x) if isinstance(x, bool) else x


def _refuse(a: Any, e: Any, at: tuple[Any, ...]) -> NoReturn:
    text = f"No comparison pair was able to handle inputs of type {type(a)} and {type(e)}."
    raise _IncomparableError(TypeError, text, at)


def _alike(a: Any, e: Any) -> tuple[Any, Any]:
    """On one device, of one dtype, in one layout."""
    if a.device != e.device:
        a, e = a.cpu(), e.cpu()
    if a.dtype is not e.dtype:
        wide = [
            dt.int64 if t in (dt.uint16, dt.uint32, dt.uint64) else t for t in (a.dtype, e.dtype)
        ]
        common = dt.promote_types(*wide)
        a, e = a.to(common), e.to(common)
    if a.layout is not e.layout:
        a, e = a.to_dense(), e.to_dense()
    return a, e


def _number_text(a: Any, e: Any, rtol: float, atol: float) -> str:
    gap = abs(a - e)
    relative = float("inf") if e == 0 else gap / abs(e)
    found = f"Expected {e} but got {a}."
    return _differences("Scalars", found, (gap, None, atol), (relative, None, rtol))


def _tensor_text(a: Any, e: Any, matches: Any, rtol: float, atol: float) -> str:
    if not a.ndim:
        return _number_text(a.item(), e.item(), rtol, atol)
    total = matches.numel()
    wrong = total - int(matches.sum())
    found = f"Mismatched elements: {wrong} / {total} ({wrong / total:.1%})"
    fa, fe, same = a.flatten(), e.flatten(), matches.flatten()
    if a.dtype.category <= dt.INTEGER:
        fa, fe = fa.to(dt.int64), fe.to(dt.int64)
    gap = (fa - fe).abs().masked_fill(same, 0)
    relative = (gap / fe.abs()).masked_fill(same, 0)
    worst = []
    for difference, tolerance in ((gap, atol), (relative, rtol)):
        at = int(difference.argmax())
        place = tuple(int(i) for i in np.unravel_index(at, tuple(matches.shape)))
        worst.append((difference[at].item(), place, tolerance))
    return _differences("Tensor-likes", found, *worst)


def _differences(what: str, found: str, absolute: Any, relative: Any) -> str:
    exact = absolute[2] == 0 and relative[2] == 0
    lines = [f"{what} are not {'equal' if exact else 'close'}!\n\n{found}"]
    for name, (size, place, tolerance) in (("absolute", absolute), ("relative", relative)):
        if place is None:
            line = f"{name.title()} difference: {size}"
        else:
            line = f"Greatest {name} difference: {size} at index {place}"
        lines.append(line if exact else f"{line} (up to {tolerance} allowed)")
    return "\n".join(lines)
