"""Convolutions whose pixels are cut over a mesh: XLA's own way to run them is wrong or ends the
process (jax 0.10.2), so the device `xla` brings pixels together before them."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne as torch

pytest.importorskip("jax", reason="pip install 'lucerne[xla]': the device 'xla' runs on jax")

from lucerne.distributed.device_mesh import init_device_mesh
from lucerne.distributed.tensor import Shard, distribute_tensor
from lucerne.nn import functional as F

pytestmark = pytest.mark.usefixtures("meshes")

# function, shapes of image and weight, dimension of the image that is cut, settings
ROWS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...], int, dict[str, Any]]] = {
    "no batch": (F.conv_transpose2d, (2, 8, 6), (2, 3, 3, 3), 1, {"stride": 3, "dilation": 2}),
    "transposed": (F.conv_transpose2d, (2, 2, 8, 6), (2, 3, 3, 3), 2, {"stride": 2}),
    "width": (F.conv_transpose2d, (2, 2, 6, 8), (2, 3, 1, 1), 3, {"stride": 2}),
    "stride": (F.conv2d, (2, 2, 8, 6), (4, 2, 3, 3), 2, {"stride": 2, "padding": 1}),
    "groups": (F.conv2d, (2, 4, 8, 6), (4, 2, 3, 3), 2, {"groups": 2, "dilation": 2}),
    "one dimension": (F.conv1d, (2, 2, 16), (4, 2, 3), 2, {"stride": 3}),
    "uneven": (F.conv_transpose1d, (2, 2, 7), (2, 3, 3), 2, {"stride": 2}),
}


def _results(way: str, name: str, placed: bool) -> list[Any]:
    function, image, weight, dim, settings = ROWS[name]
    torch.manual_seed(0)
    x, w = torch.randn(image), torch.randn(weight)
    if placed:
        mesh = init_device_mesh("xla", (4,))
        x = distribute_tensor(x.to("xla"), mesh, [Shard(dim)])
        w = distribute_tensor(w.to("xla"), mesh, [Shard(0)])
    x, w = x.requires_grad_(), w.requires_grad_()

    def run(x: Any, w: Any) -> Any:
        if way != "in a branch":
            return function(x, w, **settings)
        both = lambda x, w: function(x, w, **settings)  # noqa: E731
        return torch.cond(x.sum() > -1e9, both, lambda x, w: both(x, w) * 2, (x, w))

    y = (run if way == "eager" else torch.compile(run))(x, w)
    found = [y]
    if way != "in a branch":
        found += torch.autograd.grad((y * y).sum(), (x, w))
    return [t.detach().cpu() for t in found]


@pytest.mark.parametrize("way", ["eager", "compiled", "in a branch"])
@pytest.mark.parametrize("name", ROWS)
def test_pixels_that_are_cut(name: str, way: str) -> None:
    for found, want in zip(_results(way, name, True), _results(way, name, False), strict=True):
        torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4)
