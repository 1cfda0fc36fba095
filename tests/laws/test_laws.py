"""Laws of all tensors: views alias, permutations invert, in-place equals out-of-place."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne as torch

DTYPES = [
    torch.float32,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.bool,
    torch.bfloat16,
    torch.complex64,
]
ARITHMETIC = [torch.float32, torch.float64, torch.int64, torch.bfloat16, torch.float16]
shapes = st.lists(st.integers(0, 4), min_size=0, max_size=4).map(tuple)
settings.register_profile("laws", max_examples=60, deadline=None)
LAW = settings.get_profile("laws")


def numbered(shape: tuple[int, ...], dtype: Any = torch.float64) -> Any:
    """A tensor whose elements are 0, 1, 2, ... in logical order."""
    return torch.arange(int(np.prod(shape, dtype=int))).reshape(shape).to(dtype)


@st.composite
def tensors(draw: Any, dtypes: Any = DTYPES) -> Any:
    """Tensors of any layout: permuted, sliced with steps, expanded, offset into larger storage."""
    x = numbered(draw(shapes), draw(st.sampled_from(dtypes)))
    for _ in range(draw(st.integers(0, 3))):
        x = draw(st.sampled_from([_permuted, _sliced, _expanded, _narrowed]))(draw, x)
    return x


def _permuted(draw: Any, x: Any) -> Any:
    return x.permute(draw(st.permutations(range(x.ndim))))


def _sliced(draw: Any, x: Any) -> Any:
    if not x.ndim:
        return x
    d = draw(st.integers(0, x.ndim - 1))
    index = [slice(None)] * x.ndim
    index[d] = slice(None, None, draw(st.integers(1, 3)))
    return x[tuple(index)]


def _expanded(draw: Any, x: Any) -> Any:
    return x.unsqueeze(0).expand(draw(st.integers(0, 3)), *x.shape)


def _narrowed(draw: Any, x: Any) -> Any:
    if not x.ndim or not x.shape[0]:
        return x
    start = draw(st.integers(0, x.shape[0] - 1))
    return x.narrow(0, start, x.shape[0] - start)


def same(a: Any, b: Any) -> bool:
    """Equal shape, dtype and every element."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tolist() == b.tolist()


def test_same_can_fail() -> None:
    one = torch.ones(2)
    assert same(one, torch.ones(2))
    assert not same(one, torch.zeros(2))
    assert not same(one, torch.ones(2, 1))
    assert not same(one, torch.ones(2, dtype=torch.int64))


@settings(LAW)
@given(tensors(), st.data())
def test_permute_inverts(x: Any, data: Any) -> None:
    p = data.draw(st.permutations(range(x.ndim)))
    inverse = [p.index(d) for d in range(x.ndim)]
    back = x.permute(p).permute(inverse)
    assert same(back, x)
    assert back.stride() == x.stride()
    assert back.data_ptr() == x.data_ptr()


@settings(LAW)
@given(shapes, st.data())
def test_a_write_through_a_view_is_seen_by_the_base(shape: tuple[int, ...], data: Any) -> None:
    base = numbered(shape)
    expected = base.numpy().copy()
    view, mirror = base, expected
    for _ in range(data.draw(st.integers(1, 3))):
        order = data.draw(st.permutations(range(view.ndim)))
        view, mirror = view.permute(order), mirror.transpose(order)
        if view.ndim:
            step = data.draw(st.integers(1, 3))
            view, mirror = view[::step], mirror[::step]
    view.mul_(-1).sub_(7)
    mirror[...] = mirror * -1 - 7
    assert base.tolist() == expected.tolist()
    assert base._version == 2, "every write through any view counts"


@settings(LAW)
@given(
    tensors(ARITHMETIC), st.sampled_from(["add", "sub", "mul", "maximum", "neg", "abs", "square"])
)
def test_in_place_equals_out_of_place(x: Any, name: str) -> None:
    x = x.clone()
    args = [] if name in ("neg", "abs", "square") else [x.flip(0) if x.ndim else x + 1]
    if not hasattr(x, f"{name}_"):
        return
    expected = getattr(x, name)(*args)
    pointer = x.data_ptr()
    got = getattr(x, f"{name}_")(*args)
    assert got is x
    assert x.data_ptr() == pointer
    assert same(x, expected)


@settings(LAW)
@given(shapes, st.data())
def test_broadcasting_equals_expansion(shape: tuple[int, ...], data: Any) -> None:
    keep = [data.draw(st.booleans()) for _ in shape]
    small = tuple(n if k else 1 for n, k in zip(shape, keep, strict=True))
    lead = data.draw(st.integers(0, len(small)))
    a = numbered(shape)
    b = numbered(small[lead:] if all(n == 1 for n in small[:lead]) else small)
    for op in (torch.add, torch.mul, torch.sub, torch.maximum, torch.eq):
        assert same(op(a, b), op(a, b.expand(a.shape)))


@settings(LAW)
@given(tensors())
def test_contiguous_clone_and_reshape_keep_the_elements(x: Any) -> None:
    for y in (x.contiguous(), x.clone(), x.reshape(-1).reshape(x.shape), x.flatten().view(x.shape)):
        assert same(y, x)
    assert x.contiguous().is_contiguous()


@settings(LAW)
@given(tensors())
def test_layout_never_changes_a_result(x: Any) -> None:
    y = x.contiguous()
    assert same(x.sum(), y.sum())
    if x.dtype not in (torch.bool, torch.complex64):
        assert same(x + x, y + y)
        assert same(x.flip(list(range(x.ndim))), y.flip(list(range(y.ndim))))
        if x.ndim and x.shape[0]:
            assert same(x.sort(0).values, y.sort(0).values)


@settings(LAW)
@given(tensors([torch.float64, torch.int64, torch.bool]))
def test_numpy_agrees_and_shares_memory(x: Any) -> None:
    array = x.numpy()
    assert array.tolist() == x.tolist()
    assert torch.from_numpy(array.copy()).tolist() == x.tolist()
    if array.size and x.is_contiguous() and x.dtype == torch.float64:
        array[...] = 5
        assert x.flatten()[0].item() == 5


@settings(LAW)
@given(shapes, st.integers(0, 3), st.integers(1, 4))
def test_split_and_cat_invert(shape: tuple[int, ...], dim: int, size: int) -> None:
    if not shape:
        return
    x = numbered(shape)
    d = dim % len(shape)
    assert same(torch.cat(x.split(size, d), d), x)
    if shape[d]:
        assert same(torch.stack(x.unbind(d), d), x)


@settings(LAW)
@given(tensors([torch.float64]))
def test_gradient_of_a_sum_is_ones_whatever_the_layout(x: Any) -> None:
    leaf = x.detach().clone().requires_grad_()
    leaf.permute(list(range(leaf.ndim))[::-1]).reshape(-1).sum().backward()
    assert leaf.grad.tolist() == torch.ones_like(leaf).tolist()


@settings(LAW)
@given(tensors([torch.float64]), st.data())
def test_gather_undoes_scatter(x: Any, data: Any) -> None:
    if not x.ndim:
        return
    d = data.draw(st.integers(0, x.ndim - 1))
    order = torch.tensor(data.draw(st.permutations(range(x.shape[d]))), dtype=torch.int64)
    view = [1] * x.ndim
    view[d] = x.shape[d]
    index = order.reshape(view).expand(x.shape)
    assert same(torch.zeros_like(x).scatter(d, index, x).gather(d, index), x)
