"""Results without numbers: what a custom op's fake implementation says about shapes and dtypes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from lucerne._src.capture.trace.fake import CaptureError, fake_tensor
from lucerne._src.ir import argument_errors, dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.dispatch import InPlace, Interpreter
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.eager.keys import metas_of


class Shapes(Interpreter):
    """Runs ops on tensors without bytes: only metas are computed."""

    level = "kernel"

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Any) -> Any:
        if type(out) is InPlace:
            return None
        if op.kind == op_.VIEW:
            return proceed(op, args, out)
        if op.data_dependent:
            raise NoFakeError(
                f"{op.name}: the shape of its result depends on the data, which a fake tensor lacks"
            )
        made = [fake_tensor(m) for m in argument_errors.asked_metas(op, metas_of(op, args), args)]
        return made[0] if len(made) == 1 else tuple(made)

    def made(self, tensor: Any) -> None:
        """A tensor of numbers from Python stays what it is: only its shape is looked at."""

    def reads(self, tensor: Any) -> NoReturn:
        raise NoFakeError(
            "a fake implementation looked at the values of a tensor: it may only use shapes, "
            "dtypes, strides and devices"
        )


class NoFakeError(CaptureError, RuntimeError):
    """A custom op that a graph can't hold: it has no (usable) fake implementation."""


class FakeImplCtx:
    """What `get_ctx()` returns inside a fake implementation."""

    def __init__(self, name: str) -> None:
        self._name = name

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> NoReturn:
        """A size that only the data tell: a graph can't hold it, so the call runs uncompiled."""
        raise NoFakeError(
            f"{self._name}: the shape of its result depends on the data (new_dynamic_size), which "
            "a graph can't hold. Compiled functions run this call as Python, between two graphs."
        )

    create_unbacked_symint = new_dynamic_size


class _Current(threading.local):
    context: FakeImplCtx | None = None


_current = _Current()


def get_ctx() -> FakeImplCtx:
    """The context of the fake implementation that is running."""
    if _current.context is None:
        raise RuntimeError(
            "get_ctx() can only be called inside of an fake implementation registered to a custom "
            "op with register_fake"
        )
    return _current.context


@contextmanager
def faking(name: str) -> Iterator[None]:
    """Inside, ops compute shapes only, and `get_ctx` has an answer."""
    before = _current.context
    _current.context = FakeImplCtx(name)
    try:
        with dispatch.unseen(), Shapes():
            yield
    finally:
        _current.context = before


def as_fakes(value: Any) -> Any:
    """Metas among arguments as tensors without bytes."""
    if isinstance(value, TensorMeta):
        return fake_tensor(value)
    if isinstance(value, (tuple, list)):
        return type(value)(as_fakes(v) for v in value)
    return value


def metas_in(value: Any) -> Any:
    """Tensors in a result as their metas."""
    if isinstance(value, TensorBase):
        return value._meta
    if isinstance(value, (tuple, list)):
        return tuple(metas_in(v) for v in value)
    return value
