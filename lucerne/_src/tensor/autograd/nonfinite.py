"""Where the first value that is no finite number was born: op, line, module, direction, ranges.

Forward calls are seen as the user wrote them (`softmax` is one call, whatever it overflows inside);
backward passes node by node. Compiled functions stay compiled: `capture.finite` looks at what they
give, and calls them as they are written when something is wrong.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.base.process.error_notes import backward_failed
from lucerne._src.ir import op as op_
from lucerne._src.ir.dispatch import Interpreter, Proceed
from lucerne._src.ir.op import Op
from lucerne._src.tensor.autograd.graph import set_detect_anomaly
from lucerne._src.tensor.autograd.modes import no_grad
from lucerne._src.tensor.autograd.node import GradientNode, anomaly
from lucerne._src.tensor.autograd.ranges import WithRange, counts
from lucerne._src.tensor.base import TensorBase


class NonFiniteError(RuntimeError):
    """A call made nan or inf of finite numbers."""

    is_for_caller = True
    """Also from inside of a compiled function."""


class detect_nonfinite(Interpreter):
    """Inside, the first call that makes nan or inf of numbers that were none raises, and says which
    op, line and module it was, in the forward or the backward pass, and how large its inputs were.

    An infinite number that is given (`masked_fill(mask, -inf)`) is nobody's mistake, nor is what
    comes of it, unless that is nan. It is for debugging: every result is looked at. Compiled
    functions stay compiled, and cost a few percent more.

    >>> import lucerne as torch
    >>> with torch.detect_nonfinite():
    ...     torch.log(torch.tensor([1.0, 0.0]))
    Traceback (most recent call last):
    ...
    lucerne._src.tensor.autograd.nonfinite.NonFiniteError: log() gave inf in 1 of 2 values...
    """

    level = "call"
    wants_values = True

    def __enter__(self) -> detect_nonfinite:
        self._before = anomaly.looks
        self._anomaly = set_detect_anomaly(True, check_nan=False)
        anomaly.looks = _look_at_gradients
        super().__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            if anomaly.ends is not None:
                anomaly.ends(exc[:1] in ((), (None,)))
        finally:
            super().__exit__(*exc)
            anomaly.looks = self._before
            self._anomaly.__exit__()

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Proceed) -> Any:
        if _inside.nodes:
            return proceed(op, args, out)
        given = list(_flat(args))
        # (an op in place may write over what it was given: it is looked at before)
        before = [counts(x) for x in given] if out is not None else None
        result = proceed(op, args, out)
        if op.kind == op_.VIEW or not any(isinstance(x, TensorBase) for x in given):
            return result
        wrong = _born([result], given, before)
        if wrong:
            named = zip(op.args, args, strict=False)
            shown = [f"{name}: {WithRange(x)!r}" for name, x in named if isinstance(x, TensorBase)]
            raise NonFiniteError(
                f"{op.name}() gave {wrong} in the forward pass, of {', '.join(shown)}"
            )
        return result


class _Inside(threading.local):
    nodes = 0
    """Nodes of backward passes that are running."""


_inside = _Inside()


def _look_at_gradients(
    node: GradientNode, grads: Sequence[Any], run: Callable[[], Sequence[Any]]
) -> Sequence[Any]:
    _inside.nodes += 1
    try:
        results = run()
    finally:
        _inside.nodes -= 1
    if node.is_watched:
        return results
    wrong = _born(results, list(_flat(grads)), None)
    if not wrong:
        return results
    given = [(f"gradient {k + 1}", WithRange(x)) for k, x in enumerate(grads)]
    shown = ", ".join(repr(x) for _, x in given)
    error = NonFiniteError(f"{node.name()} gave {wrong} in the backward pass, of {shown}")
    backward_failed(error, node.module, node.place, given)
    raise error


def _flat(things: Any) -> Any:
    for x in things:
        if isinstance(x, (tuple, list)):
            yield from _flat(x)
        else:
            yield x


def _born(results: Any, given: list[Any], before: list[tuple[int, int]] | None) -> str:
    """What is new among the results, in words; "": nothing is."""
    with no_grad():
        found = [(counts(x), x) for x in _flat(results) if isinstance(x, TensorBase)]
        nans, infs = (sum(c[k] for c, _ in found) for k in (0, 1))
        if not (nans or infs):
            return ""
        known = [_of_number(x) or counts(x) for x in given] if before is None else before
        if nans and not any(nan for nan, _ in known):
            kind, count = "nan", nans
        elif infs and not any(nan or inf for nan, inf in known):
            kind, count = "inf", infs
        else:
            return ""
    return f"{kind} in {count} of {sum(x._meta.numel for _, x in found)} values"


def _of_number(x: Any) -> tuple[int, int] | None:
    if not isinstance(x, float):
        return None
    return int(math.isnan(x)), int(math.isinf(x))
