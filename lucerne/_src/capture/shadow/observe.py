"""What can be seen after a call, taken apart so that two calls can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lucerne._src.capture.shadow.nearness import Array, Difference, NearnessRule, Spread
from lucerne._src.capture.shadow.state import Surroundings
from lucerne._src.capture.trace.pytree import flatten
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.interop.outside import bits

PLAIN = (bool, int, float, complex, str, bytes, type(None))


@dataclass
class TensorFacts:
    """A tensor as it was at a moment."""

    meta: TensorMeta
    array: Array
    requires_grad: bool


@dataclass
class ShadowObservation:
    """By name, in the order in which a reader wants to hear of them."""

    tensors: dict[str, TensorFacts] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)
    sharing: dict[str, str] = field(default_factory=dict)
    error: str = ""


def facts(t: Any) -> TensorFacts:
    try:
        array = np.array(bits(t))
    except ValueError:  # it reaches outside of its memory: like nothing else
        array = np.full(tuple(t._meta.shape), 0x7F, t._meta.dtype.storage)
    return TensorFacts(t._meta, array, t._needs_grad)


def observed(surroundings: Surroundings, result: Any) -> ShadowObservation:
    """After a call that returned `result`."""
    made = ShadowObservation()
    leaves: list[Any] = []
    flatten(result, leaves)
    named: list[tuple[str, Any]] = []
    for k, x in enumerate(leaves):
        name = f"result {k}" if len(leaves) > 1 else "the result"
        if isinstance(x, TensorBase):
            made.tensors[name] = facts(x)
            named.append((name, x))
        elif isinstance(x, PLAIN):
            made.others[name] = x
    known = surroundings.tensors()
    for name, t in known:
        made.tensors[f"{name}, afterwards"] = facts(t)
        grad = None if t._auto is None else t._auto.grad
        if grad is not None and id(grad) not in surroundings.named:
            made.tensors[f"the new gradient of {name}"] = facts(grad)
        elif name.startswith("argument") or t._needs_grad:
            made.others[f"whether {name} has a gradient"] = grad is not None
    _slots(surroundings, made)
    _share(named, known, made)
    return made


def named_tensors(surroundings: Surroundings, result: Any) -> list[tuple[str, Any]]:
    """The tensors that a call left behind, by the names that `observed` gives them."""
    leaves: list[Any] = []
    flatten(result, leaves)
    found = [
        (f"result {k}" if len(leaves) > 1 else "the result", x)
        for k, x in enumerate(leaves)
        if isinstance(x, TensorBase)
    ]
    for name, t in surroundings.tensors():
        found.append((f"{name}, afterwards", t))
        grad = None if t._auto is None else t._auto.grad
        if grad is not None:
            found.append((f"the new gradient of {name}", grad))
    return found


def _slots(surroundings: Surroundings, made: ShadowObservation) -> None:
    """What the function put into containers, attributes and variables."""
    for table in surroundings.tables:
        for slot, _, new in table.changes():
            leaves: list[Any] = []
            flatten(new, leaves)
            for k, x in enumerate(leaves):
                name = f"{slot} item {k}" if len(leaves) > 1 else f"{slot}"
                if isinstance(x, TensorBase):
                    made.tensors[name] = facts(x)
                elif isinstance(x, PLAIN):
                    made.others[name] = x


def _share(
    named: Sequence[tuple[str, Any]], known: Sequence[tuple[str, Any]], made: ShadowObservation
) -> None:
    """Which results are the same objects, or lie in the same memory, as others."""
    before: list[tuple[str, Any]] = list(known)
    for name, t in named:
        told = []
        for other, x in before:
            if t is x:
                told.append(f"is {other}")
            elif t._storage.buffer is x._storage.buffer and t._meta.numel and x._meta.numel:
                told.append(f"shares memory with {other}")
        made.sharing[name] = ", ".join(sorted(told)[:4])
        before.append((name, t))


def differences(
    got: ShadowObservation,
    want: ShadowObservation,
    spread: Any = None,
    known: dict[str, Any] | None = None,
) -> dict[str, Difference]:
    """By name of what differs. `spread(name)`: how far rounding moves it, if that is known."""
    found: dict[str, Difference] = {}
    if got.error or want.error:
        if got.error != want.error:
            text = f"it raises {got.error or 'nothing'} where {want.error or 'nothing'} is right"
            found["the call"] = _said(text)
        return found
    rule = NearnessRule(local=False)
    for name, b in want.tensors.items():
        a = got.tensors.get(name)
        if a is None:
            found[name] = _said("it is not there")
            continue
        how = _tensor(a, b, rule, _asked(spread, name), (known or {}).get(name))
        if how is not None:
            found[name] = how
    for name in got.tensors.keys() - want.tensors.keys():
        found[name] = _said("it is there where nothing should be")
    for name, x in want.others.items():
        y = got.others.get(name)
        if y != x and not (x != x and y != y):
            found[name] = _said(f"{y!r} where {x!r} is right")
    for name, text in want.sharing.items():
        if got.sharing.get(name, "") != text and name not in found:
            have = got.sharing.get(name) or "lies in memory of its own"
            found[name] = _said(f"it {have} where {text or 'memory of its own'} is right")
    return found


def _asked(spread: Any, name: str) -> Spread:
    return lambda: None if spread is None else spread(name)


def _tensor(
    a: TensorFacts, b: TensorFacts, rule: NearnessRule, spread: Spread, known: Array | None
) -> Difference | None:
    if a.meta.dtype is not b.meta.dtype:
        return _said(f"its dtype is {a.meta.dtype.name} where {b.meta.dtype.name} is right")
    if a.requires_grad != b.requires_grad:
        return _said(f"its requires_grad is {a.requires_grad} where {b.requires_grad} is right")
    same = tuple(a.meta.shape) == tuple(b.meta.shape) and a.meta.numel
    if same and _strides(a.meta) != _strides(b.meta):
        return _said(f"its strides are {a.meta.strides} where {b.meta.strides} is right")
    return rule.difference(a.array, b.array, b.meta.dtype, spread, known)


def _strides(meta: TensorMeta) -> list[int]:
    """The step along a dimension of one element is never taken."""
    return [s for s, n in zip(meta.strides, meta.shape, strict=True) if n > 1]


def _said(text: str) -> Difference:
    return Difference(float("inf"), (), None, None, 0, 0, text)
