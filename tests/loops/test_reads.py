"""A fused loop reads a value only where it makes it: the rule, the verifier, and what was wrong."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import lucerne as torch
from lucerne._src.backends.cpu.rules import fused
from lucerne._src.base import dtype as dt
from lucerne._src.base.device import device
from lucerne._src.ir.checks.fused_reads import REPEATED, dims_read
from lucerne._src.ir.checks.index_maps import IndexMapError, LoopAccess, LoopWalk, check, joint
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.text import parse

F = torch.nn.functional

# ---- the rule ------------------------------------------------------------------------------------

VIEWS: list[Callable[[Any], Any]] = [
    lambda v: v[0], lambda v: v[:1], lambda v: v[1:], lambda v: v[::2], lambda v: v[..., 0],
    lambda v: v.transpose(0, -1), lambda v: v[..., :1], lambda v: v.unsqueeze(0),
    lambda v: v.unsqueeze(-1),
    lambda v: v.squeeze(), lambda v: v.expand(2, *v.shape), lambda v: v.diagonal(0, 0, -1),
    lambda v: v.unfold(0, 2, 1), lambda v: v.flatten(), lambda v: v[..., None].expand(*v.shape, 3),
]  # fmt: skip


def addresses(shape: Any, steps: Any, offset: int = 0) -> Iterator[tuple[tuple[int, ...], int]]:
    for at in itertools.product(*map(range, shape)):
        yield at, offset + sum(i * s for i, s in zip(at, steps, strict=True))


def some_mapping(made: TensorMeta, view: TensorMeta, offset: int) -> bool:
    """By trying: whether each dimension of a view can be one of the value's (or none), so that all
    elements are there, each at its own index."""
    own = dict(addresses(made.shape, made.byte_strides))
    choices = [[None, *range(made.ndim)]] * view.ndim
    for mapping in itertools.product(*choices):
        used = [d for d in mapping if d is not None]
        wide = {d for d, n in enumerate(made.shape) if n > 1}
        if len(set(used)) != len(used) or not wide <= set(used):
            continue
        pairs = zip(mapping, view.shape, strict=True)
        if any(d is not None and made.shape[d] != n for d, n in pairs):
            continue
        if all(
            own[tuple(at[mapping.index(d)] if d in mapping else 0 for d in range(made.ndim))] == a
            for at, a in addresses(view.shape, view.byte_strides, offset)
        ):
            return True
    return False


@settings(max_examples=150)
@given(st.lists(st.sampled_from((1, 2, 3)), min_size=1, max_size=3), st.data())
def test_the_rule_is_what_trying_all_mappings_says(shape: list[int], data: Any) -> None:
    base = torch.zeros(*shape)
    if data.draw(st.booleans()):
        base = base.transpose(0, -1).clone(memory_format=torch.preserve_format)
    view = base
    for number in data.draw(st.lists(st.sampled_from(range(len(VIEWS))), max_size=3)):
        try:
            view = VIEWS[number](view)
        except (RuntimeError, IndexError):
            continue
    if (view._base is None and view is not base) or view.dim() > 4 or not view.numel():
        return  # a copy, or nothing at all
    meta, offset = view._meta, 4 * view.storage_offset()
    found = dims_read(base._meta, meta.shape, meta.byte_strides, offset)
    assert (found is not None) == some_mapping(base._meta, meta, offset)


def test_the_mapping_itself() -> None:
    made = make_meta(dt.float32, (4, 1, 6), None, device("cpu"))
    assert dims_read(made, (6, 4), (4, 24), 0) == (2, 0)
    assert dims_read(made, (1, 4, 2, 6), (0, 24, 0, 4), 0) == (None, 0, REPEATED, 2)
    assert dims_read(made, (24,), (4,), 0) is None
    assert dims_read(made, (4, 6), (24, 4), 4) is None
    assert dims_read(made, (4, 4), (24, 24), 0) is None


# ---- the verifier fails when it should -----------------------------------------------------------

ROWS = """graph(%0: float32[4, 6], %1: float32[6])
  %2: float32[4, 6] = mul(%0, %1)
  %3: float32[4, 1] = sum(%2, (1,), True, None)
  %4: float32[4, 6] = sub2(%2, %3)
  return %4, %3"""
VIEWED = """graph(%0: float32[4, 6])
  %1: float32[4, 6] = exp(%0)
  %2: float32[1, 4, 6] = unsqueeze(%1, 0)
  %3: float32[1, 4, 6] = mul(%2, %2)
  return %3"""


def told(text: str) -> tuple[Any, LoopWalk]:
    found = fused.walk(parse(text))
    assert found is not None
    return found


EMPTY = """graph(%0: float32[3, 0])
  %1: float32[3, 0] = tanh(%0)
  %2: float32[3, 0] = sub2(%0, %1)
  return %2"""
CROOKED = """graph(%0: float32[3, 4]{24, 7})
  %1: float32[3, 4] = mul(%0, 0.5)
  %2: float32[3, 4]{24, 7} = copy(%0, %1)
  return %2"""
LAPPING = """graph(%0: float32[3, 8, 2]{8, 1, 8})
  %1: float32[3, 8, 2]{16, 1, 8} = abs(%0)
  %2: float32[] = sum(%1, None, False, None)
  return %2"""


@pytest.mark.parametrize("text", [ROWS, VIEWED, EMPTY, CROOKED, LAPPING])
def test_right_loops_pass(text: str) -> None:
    check(*told(text))


def _steps(
    walk: LoopWalk, change: Callable[[int, int, tuple[int, ...]], tuple[int, ...]]
) -> LoopWalk:
    loops = tuple((n, change(k, n, steps)) for k, (n, steps) in enumerate(walk.loops))
    return dataclasses.replace(walk, loops=loops)


def _dims(walk: LoopWalk, **new: Any) -> LoopWalk:
    return dataclasses.replace(walk, dims={**walk.dims, **{int(k[1:]): v for k, v in new.items()}})


TWICE = """graph(%0: float32[3, 4])
  %1: float32[3, 4] = mul(%0, 0.5)
  %2: float32[3, 4]{3, 1} = copy(%0, %1)
  return %2"""

WRONG: dict[str, tuple[str, Callable[[LoopWalk], LoopWalk]]] = {
    "a store that stays": (ROWS, lambda w: _steps(w, lambda k, n, s: (0, *s[1:]))),
    "a store twice as far": (ROWS, lambda w: _steps(w, lambda k, n, s: (2 * s[0], *s[1:]))),
    "overlapping": (VIEWED, lambda w: dataclasses.replace(w, loops=((4, (4, 24)), (6, (4, 4))))),
    "a load that goes on too slowly": (
        ROWS, lambda w: _steps(w, lambda k, n, s: (*s[:-1], s[-1] // 2))
    ),
    "memory that meets itself": (TWICE, lambda w: w),
    "a loop too short": (
        ROWS, lambda w: dataclasses.replace(
            w, loops=((w.loops[0][0] - 1, w.loops[0][1]), *w.loops[1:]))
    ),
    "a loop too many": (ROWS, lambda w: dataclasses.replace(w, loops=(*w.loops, (3, (0,) * 4)))),
    "a start elsewhere": (
        ROWS, lambda w: dataclasses.replace(
            w, accesses=tuple(dataclasses.replace(a, offset=4) for a in w.accesses))
    ),
    "an output that nobody writes": (
        VIEWED, lambda w: dataclasses.replace(
            w, accesses=w.accesses[1:], loops=tuple((n, s[1:]) for n, s in w.loops))
    ),
    "an input that nobody loads": (
        VIEWED, lambda w: dataclasses.replace(
            w, accesses=w.accesses[:1], loops=tuple((n, s[:1]) for n, s in w.loops))
    ),
    "a view of a part": (VIEWED, lambda w: _dims(w, v2=(None, None, w.dims[1][1]))),
    "a view along other axes": (VIEWED, lambda w: _dims(w, v2=(None, *reversed(w.dims[1])))),
    "an operand at another index": (ROWS, lambda w: _dims(w, v1=(w.dims[0][0],))),
    "one axis for two dimensions": (ROWS, lambda w: _dims(w, v2=(w.dims[2][0],) * 2)),
    "a fold that leaves what it folds": (ROWS, lambda w: _dims(w, v3=(None, w.dims[2][1]))),
    "a value in no loop": (
        ROWS, lambda w: dataclasses.replace(w, dims={k: v for k, v in w.dims.items() if k != 2})
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_loops_are_refused(name: str) -> None:
    text, change = WRONG[name]
    graph, walk = told(text)
    with pytest.raises(IndexMapError):
        check(graph, change(walk))


def test_loops_in_one_form() -> None:
    assert joint([(2, (24, 0)), (1, (7, 7)), (6, (4, 0))]) == joint([(12, (4, 0))])
    assert joint([(2, (24, 1)), (6, (4, 0))]) != joint([(12, (4, 0))])


def test_ways_to_cut_one_row() -> None:
    """A product of 6 x 4 read as 24 and as 2 x 3 x 4 by what follows it."""
    graph = parse("""graph(%0: float32[6, 4], %1: float32[2, 3, 4])
  %2: float32[2, 3, 4] = view(%0, (2, 3, 4))
  %3: float32[2, 3, 4] = mul(%2, %1)
  return %3""")
    dims = {2: (0, 1, 2), 1: (0, 1, 2), 3: (0, 1, 2), 0: (3, 2)}
    accesses = (LoopAccess(3, 0, is_store=True), LoopAccess(2, 0), LoopAccess(1, 0))
    loops = ((6, (16, 16, 16)), (4, (4, 4, 4)))
    walk = LoopWalk((2, 3, 4, 6), dims, accesses, loops, ((0, 1, 2), (3, 2)))
    check(graph, walk)
    with pytest.raises(IndexMapError):
        check(graph, dataclasses.replace(walk, loops=((6, (16, 16, 0)), (4, (4, 4, 4)))))


def test_what_is_written_over_has_no_loops() -> None:
    """The target of a `copy` is asked for its place only: nobody goes along axes of its own."""
    graph = parse(
        "graph(%0: float32[3, 3])\n"
        "  %1: float32[3, 3, 3] = filled((3, 3, 3), 0.0, torch.float32, device(type='cpu'), None)\n"
        "  %2: float32[3, 3, 3] = copy(%1, %0)\n  return %2"
    )
    dims = {0: (4, 5), 1: (0, 1, 2), 2: (3, 4, 5)}
    accesses = (LoopAccess(2, 0, is_store=True), LoopAccess(0, 0))
    walk = LoopWalk((3,) * 6, dims, accesses, ((3, (36, 0)), (9, (4, 4))))
    check(graph, walk)
    with pytest.raises(IndexMapError):  # it is not read, but it is not gone through either
        check(graph, dataclasses.replace(walk, loops=((3, (0, 0)), *walk.loops)))
    read = parse(str(graph).replace("copy(%1, %0)", "maximum(%1, %0)"))
    with pytest.raises(IndexMapError):  # one that is read is made at the index of its reader
        check(read, walk)


# ---- what was wrong ------------------------------------------------------------------------------

PARTS: dict[str, Callable[[Any], Any]] = {
    "v[0]": lambda v: v[0], "v[:1]": lambda v: v[:1], "narrow": lambda v: v.narrow(0, 0, 1),
    "v[tensor(0)]": lambda v: v[torch.tensor(0)], "v[0].sum()": lambda v: v[0].sum(),
    "v[0, 0]": lambda v: v[0, 0], "v[:, :1]": lambda v: v[:, :1], "v.T": lambda v: v.T,
    "v[:, 0, None]": lambda v: v[:, 0, None], "v[..., :1]": lambda v: v[..., :1],
    "expand": lambda v: v[:1].expand(*v.shape), "diagonal": lambda v: v.diagonal(),
    "unfold": lambda v: v.unfold(0, 1, 1)[..., 0],
    "as_strided": lambda v: v.as_strided((4,), (0,)), "select": lambda v: v.select(1, 0),
}  # fmt: skip
AFTER: dict[str, Callable[[Any], Any]] = {
    "mul": lambda x: x * 2, "exp": lambda x: (x * 0.1).exp(), "relu": lambda x: x.relu(),
    "softmax": lambda x: x.softmax(-1), "rms_norm": lambda x: F.rms_norm(x, (4,)),
    "where": lambda x: torch.where(x > 0, x, x * 2), "in place": lambda x: x.clone().mul_(2),
    "outer": lambda x: x[:, :1] * x[:1],
}  # fmt: skip


def same(fn: Callable[..., Any], *args: Any, **options: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = torch.compile(fn, **options)(*args)
    torch.testing.assert_close(got, fn(*args), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("part", PARTS)
def test_a_value_with_a_part_of_itself(part: str) -> None:
    x = torch.arange(16.0).reshape(4, 4).sin()
    for after in AFTER.values():
        same(lambda x, after=after: (lambda v: v - PARTS[part](v))(after(x)), x)
        same(lambda x, after=after: (lambda v: ((v - PARTS[part](v)) ** 2).sum())(after(x)), x)


@pytest.mark.parametrize("mode", [None, "bitwise"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_of_other_types_and_modes(dtype: Any, mode: str | None) -> None:
    for shape in ((5,), (3, 5), (2, 3, 4)):
        x = torch.arange(120)[: torch.Size(shape).numel()].reshape(shape).to(dtype)
        same(lambda x: (lambda v: v - v[0])(x * 2), x, mode=mode)


def test_the_gradient_through_a_part() -> None:
    def fn(x: Any) -> Any:
        v = x * 2
        return ((v - v[0]) ** 2).sum()

    x, y = (torch.arange(4.0, requires_grad=True) for _ in range(2))
    fn(x).backward()
    torch.compile(fn)(y).backward()
    torch.testing.assert_close(y.grad, x.grad)
    assert y.grad.abs().sum() > 0


def test_rows_and_columns_of_one_size() -> None:
    """What a fold leaves is along the rows, and is read along the columns."""

    def fn(u: Any, w: Any) -> Any:
        v = u[:, None] * w
        return (v - v.sum(1)[None]).sum(1)

    same(fn, torch.randn(4), torch.randn(4))


CONVOLUTIONS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "1 x 1 pixels": (F.conv2d, (3, 2, 1, 1), (2, 2, 1, 1)),
    "one pixel in a row": (F.conv1d, (3, 2, 1), (2, 2, 1)),
    "a transposed one": (F.conv_transpose2d, (3, 2, 1, 1), (2, 2, 1, 1)),
    "a wide column": (F.conv2d, (3, 2, 5, 1), (4, 2, 1, 1)),
    "many channels": (F.conv2d, (5, 16, 1, 1), (33, 16, 1, 1)),
    "three dimensions": (F.conv3d, (2, 16, 4, 5, 6), (32, 16, 2, 1, 2)),
    "three dimensions of one": (F.conv3d, (3, 2, 1, 1, 1), (2, 2, 1, 1, 1)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ops_behind_a_convolution(name: str, dtype: Any) -> None:
    conv, shape, weights = CONVOLUTIONS[name]
    x, w = torch.randn(*shape, dtype=dtype), torch.randn(*weights, dtype=dtype)
    b = torch.randn(weights[0], *[1] * (len(shape) - 2), dtype=dtype)
    same(lambda x, w: conv(x, w) + 1, x, w)
    same(lambda x, w, b: (conv(x, w).relu() + b).sigmoid(), x, w, b)


def test_one_number_beside_one_channel() -> None:
    x, w, r = torch.randn(3, 3, 5, 3), torch.randn(1, 3, 3, 3), torch.randn(1)
    same(lambda x, w, r: F.conv2d(x, w) * r, x, w, r)


def test_a_convolution_beside_its_own_input() -> None:
    x, w = torch.randn(4, 8, 1, 1), torch.randn(8, 8, 1, 1)
    same(lambda x, w: F.conv2d(x, w).sigmoid() * x, x, w)
