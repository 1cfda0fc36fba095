"""Dtypes that hardly anybody uses with an op: what `metric M4 --all-dtypes` found, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucerne

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

MODES: list[dict[str, Any]] = [
    {"mode": "bilinear"},
    {"mode": "bilinear", "align_corners": True},
    {"mode": "bilinear", "antialias": True},
    {"mode": "bicubic"},
    {"mode": "bicubic", "align_corners": True},
    {"mode": "bicubic", "antialias": True},
    {"mode": "lanczos", "antialias": True},
]


def both(function: Any, *arrays: Any) -> tuple[Any, Any]:
    """The function's result from torch and from Lucerne, on the same arrays."""
    return tuple(function(t, *map(t.from_numpy, arrays)) for t in (torch, lucerne))


@pytest.mark.parametrize("given", MODES, ids=lambda g: "-".join(map(str, g.values())))
@pytest.mark.parametrize("channels", [1, 3, 5])
def test_images_of_bytes_are_resized_in_whole_numbers(given: Any, channels: int) -> None:
    rng = np.random.default_rng(channels)
    for source in ((7, 9), (20, 5)):
        for size in ((3, 20), (14, 10), (20, 9), (2, 2)):
            image = rng.integers(0, 256, (2, channels, *source)).astype(np.uint8)
            for layout in ("contiguous_format", "channels_last"):

                def resized(t: Any, x: Any, layout: str = layout, size: Any = size) -> Any:
                    x = x.contiguous(memory_format=getattr(t, layout))
                    return t.nn.functional.interpolate(x, size=size, **given)

                theirs, ours = both(resized, image)
                np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
                assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("scale", [0.6, 1.7, (1.3, 1.0)], ids=str)
def test_a_scale_of_images_of_bytes(scale: Any) -> None:
    image = np.arange(240, dtype=np.uint8).reshape(1, 3, 8, 10) * 7
    theirs, ours = both(
        lambda t, x: t.nn.functional.interpolate(x, scale_factor=scale, mode="bicubic"), image
    )
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_an_image_that_keeps_its_size_is_a_copy() -> None:
    image = lucerne.arange(12, dtype=lucerne.uint8).reshape(1, 1, 3, 4)
    copy = lucerne.nn.functional.interpolate(image, size=(3, 4), mode="bilinear")
    assert lucerne.equal(copy, image)
    copy.zero_()
    assert image.max() == 11


@pytest.mark.parametrize("number", [3, 8, 20, 100])
def test_complex_normals_share_their_variance_as_torch_divides_it(number: int) -> None:
    def drawn(t: Any) -> Any:
        t.manual_seed(number)
        plain = t.randn(number, dtype=t.complex128)
        return t.stack([plain, t.empty_like(plain).normal_(-1, 3.0), t.randn_like(plain)])

    theirs, ours = both(drawn)
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
