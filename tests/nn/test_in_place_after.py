"""Writing over the result of a layer, as `nn.ReLU(inplace=True)` does: torch allows it where the
layer's gradient doesn't need the result."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
lucerne = pytest.importorskip("lucerne")
pytestmark = pytest.mark.torch

LAYERS = {
    "batch norm": lambda t, x: t.nn.BatchNorm2d(4)(x),
    "batch norm without affine": lambda t, x: t.nn.BatchNorm2d(4, affine=False)(x),
    "batch norm without statistics": lambda t, x: t.nn.BatchNorm2d(
        4, affine=False, track_running_stats=False
    )(x),
    "batch norm in evaluation": lambda t, x: t.nn.BatchNorm2d(4).eval()(x),
    "instance norm": lambda t, x: t.nn.InstanceNorm2d(4)(x),
    "instance norm with affine": lambda t, x: t.nn.InstanceNorm2d(4, affine=True)(x),
    "group norm": lambda t, x: t.nn.GroupNorm(2, 4)(x),
    "group norm without affine": lambda t, x: t.nn.GroupNorm(2, 4, affine=False)(x),
    "layer norm": lambda t, x: t.nn.LayerNorm(6)(x),
    "layer norm without affine": lambda t, x: t.nn.LayerNorm(6, elementwise_affine=False)(x),
    "convolution": lambda t, x: t.nn.Conv2d(4, 2, 3)(x),
    "linear": lambda t, x: t.nn.Linear(6, 2)(x),
    "max_pool2d": lambda t, x: t.nn.functional.max_pool2d(x, 2),
    "adaptive_max_pool2d": lambda t, x: t.nn.functional.adaptive_max_pool2d(x, 2),
    "max": lambda t, x: x.max(1)[0],
    "sort": lambda t, x: x.sort(1)[0],
    "topk": lambda t, x: x.topk(2, 1)[0],
    "kthvalue": lambda t, x: x.kthvalue(2, 1)[0],
    "median": lambda t, x: x.median(1)[0],
    "cumsum": lambda t, x: x.cumsum(1),
    "unfold": lambda t, x: t.nn.functional.unfold(x, 2),
    "gelu": lambda t, x: t.nn.functional.gelu(x),
    "log_softmax of a copy": lambda t, x: t.nn.functional.log_softmax(x, -1) * 1,
}


def _gradient(library, layer, data):
    library.manual_seed(0)
    x = library.tensor(data, requires_grad=True)
    y = layer(library, x)
    y.mul_(2)
    (y * y).sum().backward()
    return x.grad.numpy()


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_result_may_be_written_over(layer) -> None:
    data = np.random.default_rng(0).standard_normal((3, 4, 6, 6)).astype("float32")
    want, got = (_gradient(library, layer, data) for library in (torch, lucerne))
    np.testing.assert_allclose(got, want, atol=1e-4, rtol=1e-4)


def test_what_the_gradient_needs_may_not() -> None:
    x = lucerne.ones(3, requires_grad=True)
    y = x.exp()
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    values, places = lucerne.rand(3, 4, requires_grad=True).max(1)
    places.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        values.sum().backward()
