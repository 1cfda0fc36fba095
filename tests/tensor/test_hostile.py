"""Arguments that no program should pass, or a file may hold: an exception, never foreign memory."""

from typing import Any

import pytest

import lucerne
from lucerne._src.ops.spatial.convolution import conv, conv_input, conv_weight

F = lucerne.nn.functional
IMAGE = lucerne.arange(35.0).reshape(1, 1, 5, 7)
KERNEL = lucerne.ones(1, 1, 2, 2)


@pytest.mark.parametrize("stride", [2**62, 2**63 - 1, 2**31, 20_000, 10**6, (2**40, 2**31)])
@pytest.mark.parametrize("way", [F.conv2d, lucerne.compile(F.conv2d)])
def test_a_stride_longer_than_the_image(way: Any, stride: Any) -> None:
    x, w = IMAGE.clone().requires_grad_(), KERNEL.clone().requires_grad_()
    y = way(x, w, stride=stride)
    y.sum().backward()
    assert y.tolist() == [[[[16.0]]]]
    assert x.grad.sum() == 4
    assert w.grad.flatten().tolist() == [0.0, 1.0, 7.0, 8.0]


def test_other_long_strides() -> None:
    assert F.conv1d(IMAGE.reshape(1, 1, 35), KERNEL[0, :, :1], stride=2**62).tolist() == [[[1.0]]]
    for stride in (2**62, 2**31, 20_000):
        found = F.conv_transpose2d(lucerne.ones(1, 1, 1, 1), KERNEL, stride=stride)
        assert found.tolist() == KERNEL.tolist()
    assert F.conv2d(IMAGE, KERNEL, stride=(20, 3)).tolist() == [[[[16.0, 28.0]]]]


SETTINGS = [
    {"stride": (0, 1)}, {"stride": (-1, 1)}, {"padding": (-1, 0)}, {"dilation": (0, 1)},
    {"groups": 0}, {"groups": 2**32}, {"groups": 2}, {"stride": (2**40, 1)}, {"stride": (1,)},
    {"padding": (2**62, 0)}, {"dilation": (2**62, 1)}, {"dilation": (9, 9)},
]  # fmt: skip


@pytest.mark.parametrize("wrong", SETTINGS, ids=str)
def test_the_maps_of_convolution_check_their_settings(wrong: dict[str, Any]) -> None:
    """The public functions check first; files and the compiler come by this way."""
    settings = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1, **wrong}
    given = list(settings.values())
    out = lucerne.ones(1, 1, 4, 6)
    for call in (
        lambda: conv(IMAGE, KERNEL, None, *given),
        lambda: conv_input(out, KERNEL, None, (5, 7), *given),
        lambda: conv_weight(out, IMAGE, (2, 2), *given),
    ):
        with pytest.raises(RuntimeError):
            call()


@pytest.mark.parametrize(
    "where",
    [
        (-1, (4,), (1,)), (-1_000_000, (4,), (1,)), (0, (4,), (-1,)), (0, (-4,), (1,)),
        (0, (4,), (1, 1)), (1, (4,), (1,)), (2**62, (4,), (1,)), (0, (2**62,), (2,)),
        (0, (2**40, 2**40), (2**40, 1)),
    ],
    ids=str,
)  # fmt: skip
def test_set_stays_within_the_storage(where: Any) -> None:
    x = lucerne.zeros(4)
    with pytest.raises(RuntimeError):
        x.set_(lucerne.ones(2).untyped_storage(), *where)
    assert x.tolist() == [0.0] * 4


def test_a_storage_that_was_made_smaller_is_not_read_beyond() -> None:
    compiled = lucerne.compile(lambda t: t * 1)
    x = lucerne.ones(100_000)
    compiled(x)
    x.untyped_storage().resize_(40)
    for call in (lambda: x * 1, lambda: compiled(x), x.sum, lambda: x.add_(1), x.clone):
        with pytest.raises(RuntimeError, match=r"needs 400000 bytes of its storage.*resized to 40"):
            call()
    assert x[:10].sum() == 10
    x.untyped_storage().resize_(400_000)
    assert compiled(x.fill_(2)).sum() == 200_000
