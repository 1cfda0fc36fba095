"""The operators of torchvision and torchaudio, beside their definitions as loops in float64."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucerne as lu
from lucerne._src.as_torch.extension_ops import audio, vision
from tests.ecosystem.definitions import Array, every_bin, lined, sampled, suppressed


@pytest.fixture(autouse=True)
def _registered() -> None:
    vision.register()
    audio.register()


def check_gradients(function: Callable[..., Any], inputs: list[Any]) -> None:
    """Along a random direction, the gradients say how the result changes."""
    r = np.random.default_rng(0)
    ways = [lu.tensor(r.standard_normal(x.shape)) for x in inputs]
    found = function(*inputs)
    onto = lu.tensor(r.standard_normal(found.shape))
    grads = lu.autograd.grad((found * onto).sum(), inputs, materialize_grads=True)
    want = sum((g * v).sum().item() for g, v in zip(grads, ways, strict=True))
    step = 1e-6
    with lu.no_grad():
        ahead, back = (
            (function(*[x + h * v for x, v in zip(inputs, ways, strict=True)]) * onto).sum().item()
            for h in (step, -step)
        )
    assert (ahead - back) / (2 * step) == pytest.approx(want, rel=1e-6, abs=1e-6)


# ---- boxes ------------------------------------------------------------------------------------

SIZES = [(1, 1, 1), (2, 7, 5), (2, 9, 11)]  # pictures, height, width
BINS = [(1, 1), (2, 3), (3, 2)]
CHANNELS = 6  # of it, one for each bin of those


def boxes(number: int, height: int, width: int, seed: int) -> Array:
    """Boxes inside, across the border and outside of the map."""
    r = np.random.default_rng(seed)
    found = np.zeros((6, 5))
    found[:, 0] = r.integers(0, number, 6)
    x, y = (np.sort(r.uniform(-0.3 * n, 1.3 * n, (6, 2)), axis=1) for n in (width, height))
    found[:, 1::2], found[:, 2::2] = x, y
    found[5, 1:] = (2 * width + 9, 2 * height + 9, 2 * width + 12, 2 * height + 12)
    return found


# operator, options behind the bins, whether each bin has its own channel, its definition
POOLS = [
    ("roi_align", (2, False), False, sampled(0.5, 2, False)),
    ("roi_align", (0, True), False, sampled(0.5, 0, True)),
    ("roi_align", (-1, False), False, sampled(0.5, 0, False)),
    ("ps_roi_align", (2,), True, sampled(0.5, 2, True)),
    ("ps_roi_align", (0,), True, sampled(0.5, 0, True)),
    ("roi_pool", (), False, lined(0.5, 1, 0, np.max)),
    ("ps_roi_pool", (), True, lined(0.5, 0, 1, np.mean)),
]


@pytest.mark.parametrize(("name", "options", "placed", "value"), POOLS)
@pytest.mark.parametrize("size", SIZES)
def test_bins(name: str, options: Any, placed: bool, value: Any, size: tuple[int, ...]) -> None:
    op = getattr(lu.ops.torchvision, name)
    number, height, width = size
    for seed, bins in enumerate(BINS):
        channels = CHANNELS if placed else 2
        if channels % (bins[0] * bins[1]):
            continue
        maps = np.random.default_rng(seed).standard_normal((number, channels, height, width))
        rois = 2 * boxes(number, height, width, seed)
        rois[:, 0] /= 2
        want = every_bin(maps, rois, bins, placed, value)
        for dtype, near in ((lu.float64, 1e-12), (lu.float32, 2e-5)):
            given = [lu.tensor(x, dtype=dtype) for x in (maps, rois)]
            got = op(*given, 0.5, *bins, *options)
            got, *second = got if isinstance(got, tuple) else (got,)
            assert got.dtype is dtype
            # in float32, an edge may round to another line
            if dtype is lu.float64 or "pool" not in name:
                assert np.abs(got.numpy() - want).max() <= near
        x, fixed = lu.tensor(maps, requires_grad=True), lu.tensor(rois)

        def of_maps(x: Any, rois: Any = fixed, bins: Any = bins) -> Any:
            found = op(x, rois, 0.5, *bins, *options)
            return found[0] if isinstance(found, tuple) else found

        check_gradients(of_maps, [x])
        if second and placed:
            assert second[0].flatten()[:channels].tolist() == list(range(channels))


def test_places_of_the_largest() -> None:
    x = lu.arange(12.0).view(1, 1, 3, 4)
    rois = lu.tensor([[0.0, 0, 0, 3, 2], [0, 8, 8, 9, 9]])
    found, places = lu.ops.torchvision.roi_pool(x, rois, 1.0, 1, 2)
    assert found.flatten().tolist() == [9, 11, 0, 0]
    assert places.flatten().tolist() == [9, 11, -1, -1]
    assert not places.requires_grad


def test_channels_that_do_not_fit() -> None:
    with pytest.raises(RuntimeError, match=r"multiple of pooling height \* pooling width"):
        lu.ops.torchvision.ps_roi_pool(lu.ones(1, 5, 4, 4), lu.zeros(1, 5), 1.0, 2, 2)


def test_nms() -> None:
    r = np.random.default_rng(0)
    for n, most in itertools.product((0, 1, 40), (0.1, 0.5)):
        corners = r.uniform(0, 10, (n, 2))
        dets = np.concatenate([corners, corners + r.uniform(1, 6, (n, 2))], 1)
        scores = r.uniform(0, 1, n)
        kept = suppressed(dets, scores, most)
        got = lu.ops.torchvision.nms(lu.tensor(dets), lu.tensor(scores), most)
        assert got.tolist() == kept
        assert got.dtype is lu.int64


# ---- deformable convolution -------------------------------------------------------------------

# groups, groups of offsets, strides, paddings, dilations, whether there is a mask
DEFORMED = [
    (1, 1, (1, 1), (0, 0), (1, 1), False),
    (2, 1, (2, 1), (1, 2), (1, 2), True),
    (1, 2, (1, 2), (2, 0), (2, 1), True),
]


def taken(map_: Array, y: float, x: float) -> float:
    """Linear between the points of a map, which is 0 outside."""
    top, left = math.floor(y), math.floor(x)
    found = 0.0
    for i, j in itertools.product((top, top + 1), (left, left + 1)):
        if 0 <= i < map_.shape[0] and 0 <= j < map_.shape[1]:
            found += (1 - abs(y - i)) * (1 - abs(x - j)) * map_[i, j]
    return found


def deformed(
    x: Array, w: Array, offset: Array, mask: Array, bias: Array, stride: Any, pad: Any,
    dilation: Any, groups: int, of_offsets: int, use_mask: bool,
) -> Array:  # fmt: skip
    out, own, tall, wide = w.shape
    found = np.zeros((len(x), out, *offset.shape[2:]))
    for n, o, i, j in itertools.product(*map(range, found.shape)):
        found[n, o, i, j] = bias[o]
        for c, a, b in itertools.product(range(own), range(tall), range(wide)):
            channel = o // (out // groups) * own + c
            tap = channel // (x.shape[1] // of_offsets) * tall * wide + a * wide + b
            y = i * stride[0] - pad[0] + a * dilation[0] + offset[n, 2 * tap, i, j]
            z = j * stride[1] - pad[1] + b * dilation[1] + offset[n, 2 * tap + 1, i, j]
            weight = mask[n, tap, i, j] if use_mask else 1.0
            found[n, o, i, j] += w[o, c, a, b] * weight * taken(x[n, channel], y, z)
    return found


def arranged(row: Any, seed: int, moved: float) -> tuple[list[Array], tuple[Any, ...]]:
    groups, of_offsets, stride, pad, dilation, use_mask = row
    r = np.random.default_rng(seed)
    tall, wide, height, width = 2, 3, 6, 7
    size = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip((height, width), pad, dilation, (tall, wide), stride, strict=True)
    ]
    taps = of_offsets * tall * wide
    given = [
        r.standard_normal((2, 4, height, width)), r.standard_normal((2, 4 // groups, tall, wide)),
        moved * r.standard_normal((2, 2 * taps, *size)), r.uniform(0, 1, (2, taps, *size)),
        r.standard_normal(2),
    ]  # fmt: skip
    return given, (*stride, *pad, *dilation, groups, of_offsets, use_mask)


@pytest.mark.parametrize("row", DEFORMED)
def test_deform_conv2d(row: Any) -> None:
    op = lu.ops.torchvision.deform_conv2d
    given, options = arranged(row, 0, 2.0)
    groups, of_offsets, stride, pad, dilation, use_mask = row
    want = deformed(*given, stride, pad, dilation, groups, of_offsets, use_mask)
    for dtype, near in ((lu.float64, 1e-12), (lu.float32, 2e-5)):
        got = op(*[lu.tensor(x, dtype=dtype) for x in given], *options)
        assert np.abs(got.numpy() - want).max() <= near
    inputs = [lu.tensor(x, requires_grad=True) for x in given]
    check_gradients(lambda *xs: op(*xs, *options), inputs)


@pytest.mark.parametrize("row", DEFORMED)
def test_without_offsets_it_is_a_convolution(row: Any) -> None:
    given, options = arranged(row, 1, 0.0)
    x, w, offset, mask, bias = (lu.tensor(a) for a in given)
    got = lu.ops.torchvision.deform_conv2d(x, w, offset, lu.ones_like(mask), bias, *options)
    groups, _, stride, pad, dilation, _ = row
    want = lu.nn.functional.conv2d(x, w, bias, stride, pad, dilation, groups)
    assert lu.allclose(got, want, atol=1e-12)


# ---- filters ----------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 1000])
@pytest.mark.parametrize("order", [1, 2, 4])
def test_lfilter(order: int, length: int) -> None:
    r = np.random.default_rng(order)
    taps = r.uniform(-0.3, 0.3, (2, order))
    taps[:, -1] = 1.0
    x, start = r.standard_normal((3, 2, length)), r.standard_normal((3, 2, order - 1))
    want = np.concatenate([start, np.zeros_like(x)], axis=2)
    for t in range(length):
        past = (want[:, :, t : t + order - 1] * taps[:, :-1]).sum(-1)
        want[:, :, t + order - 1] = x[:, :, t] - past
    for dtype, near in ((lu.float64, 1e-12), (lu.float32, 2e-6)):
        padded = lu.zeros(*want.shape, dtype=dtype)
        padded[:, :, : order - 1] = lu.tensor(start, dtype=dtype)
        lu.ops.torchaudio._lfilter_core_loop(
            lu.tensor(x, dtype=dtype), lu.tensor(taps, dtype=dtype), padded
        )
        assert np.abs(padded.numpy() - want).max(initial=0) <= near * np.abs(want).max(initial=1)
