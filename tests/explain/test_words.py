"""Guards and arguments in the user's words."""

from __future__ import annotations

import functools
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

import lucerne as torch
from lucerne._src.capture.guards import describe
from lucerne._src.capture.trace.pytree import flatten

Pair = namedtuple("Pair", "left right")


@dataclass
class Batch:
    ids: Any
    mask: Any


def plain(x: Any, y: Any = 1, *rest: Any, scale: Any = 2) -> None: ...


class Module(torch.nn.Module):
    def forward(self, ids: Any) -> Any:
        return ids


class Callable_:
    def __call__(self, a: Any, b: Any) -> None: ...


NAMES = [
    ("positional", plain, (1, 2), {}, ["x", "y"]),
    ("star", plain, (1, 2, 3, 4), {}, ["x", "y", "rest[0]", "rest[1]"]),
    ("by name", plain, (1,), {"scale": 3}, ["x", "scale"]),
    ("nested", plain, ([1, {"a": 2}],), {}, ["x[0]", "x[1]['a']"]),
    ("named tuple", plain, (Pair(1, 2),), {}, ["x.left", "x.right"]),
    ("dataclass", plain, (Batch(1, 2),), {}, ["x.ids", "x.mask"]),
    ("module", Module(), (1,), {}, ["ids"]),
    ("object", Callable_(), (1, 2), {}, ["a", "b"]),
    ("partial", functools.partial(plain, 1), (5,), {}, ["y"]),
    ("no signature", max, (1, 2), {}, ["argument 0", "argument 1"]),
]


@pytest.mark.parametrize(
    ("fn", "args", "kwargs", "names"), [r[1:] for r in NAMES], ids=[r[0] for r in NAMES]
)
def test_names(fn: Any, args: Any, kwargs: Any, names: list[str]) -> None:
    leaves: list[Any] = []
    assert describe.leaf_names(fn, flatten((args, kwargs), leaves)) == names
    assert len(leaves) == len(names)


trees = st.recursive(
    st.integers().map(lambda n: ("leaf", n)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text("ab'\\", max_size=3), inner, max_size=3),
        st.builds(Batch, inner, inner),
    ),
    max_leaves=8,
).map(lambda tree: _marked(tree))


class Leaf:
    """Something that is no container."""


def _marked(tree: Any) -> Any:
    """The tree with objects of their own as leaves."""
    if isinstance(tree, tuple) and tree[:1] == ("leaf",):
        return Leaf()
    if isinstance(tree, Batch):
        return Batch(_marked(tree.ids), _marked(tree.mask))
    if isinstance(tree, dict):
        return {k: _marked(v) for k, v in tree.items()}
    return type(tree)(map(_marked, tree))


@given(trees)
def test_a_name_leads_to_its_leaf(tree: Any) -> None:
    leaves: list[Any] = []
    names = describe.leaf_names(plain, flatten(((tree,), {}), leaves))
    assert len(set(names)) == len(names) == len(leaves)
    for name, leaf in zip(names, leaves, strict=True):
        assert eval(name, {"x": tree}) is leaf


SHAPES = [
    ("more", ((1,), {}), ((1,), {"scale": 2}), "it is called with scale as well"),
    ("fewer", ((1, 2), {}), ((1,), {}), "it is called without y"),
    ("other", ((1,), {"scale": 2}), ((1, 2), {}), "with y in place of scale"),
    ("by name", ((1, 2), {}), ((1,), {"y": 2}), "by name where they were not"),
]


@pytest.mark.parametrize(
    ("before", "now", "told"), [r[1:] for r in SHAPES], ids=[r[0] for r in SHAPES]
)
def test_other_shapes(before: Any, now: Any, told: str) -> None:
    shapes = [flatten(x, []) for x in (before, now)]
    assert told in describe.other_shape(plain, *shapes)


RECOMPILES = [
    ("size", lambda f: f(torch.ones(3)), "x is float32[3] on cpu, it was float32[2] on cpu"),
    ("dtype", lambda f: f(torch.ones(2).double()), "x is float64[2] on cpu"),
    ("value", lambda f: f(torch.ones(2), 5), "y is 5, it was 1"),
    ("grad", lambda f: f(torch.ones(2, requires_grad=True)), "x has another requires_grad"),
    ("modes", lambda f: torch.no_grad()(f)(torch.ones(2)), "grad mode"),
]


@pytest.mark.parametrize(
    ("call", "why"), [r[1:] for r in RECOMPILES], ids=[r[0] for r in RECOMPILES]
)
def test_recompiles_are_told_in_words(call: Any, why: str) -> None:
    compiled = torch.compile(lambda x, y=1: x * y, dynamic=False)
    compiled(torch.ones(2), 1)
    call(compiled if "y" in why else lambda x: compiled(x, 1))
    assert why in torch.compiler.ledger()[-1].why


def test_the_nearest_version_is_compared() -> None:
    compiled = torch.compile(lambda x, y: x * y, dynamic=False)
    for n, y in ((2, 1), (3, 1), (2, 5)):
        compiled(torch.ones(n), y)
    assert torch.compiler.ledger()[-1].why == "y is 5, it was 1"


def test_guards() -> None:
    layer = torch.nn.Linear(3, 3)
    compiled = torch.compile(lambda x, times: layer(x) * times)
    compiled(torch.ones(2, 3), 4)
    found = describe.guards_in_words(compiled.fn, compiled.entries[0].guards)
    assert "x is float32[2, 3] on cpu" in found
    assert "times is 4" in found
    assert any("1 modules are built as they were, with the same 2 tensors" in g for g in found)


def test_guards_tell_what_is_not_compared() -> None:
    state = {"scale": 2.0, "seen": 0, "names": ["a"]}
    compiled = torch.compile(lambda x: x * state["scale"])
    compiled(torch.ones(2))
    found = describe.guards_in_words(compiled.fn, compiled.entries[0].guards)
    assert "state['scale'] is 2.0" in found
    assert "never read, so it may change: state['seen'], state['names']" in found[-1]
    compiled = torch.compile(lambda x: torch.vmap(lambda y: y * state["scale"])(x))
    compiled(torch.ones(2))
    found = describe.guards_in_words(compiled.fn, compiled.entries[0].guards)
    assert found[-1].startswith("all that the function can reach is as it was (")


def test_conditions_from_reasons() -> None:
    told = {
        "scale was 0.5": "scale is 0.5",
        "mode is no longer None": "mode is None",
        "f is another function": "f is the same function",
        "x is no Tensor": "",
        "a value in use is another object": "",
    }
    assert {r: describe._as_condition(r) for r in told} == told
