"""Small float32 products in parts: each task packs all it reads, and every bit stays as it was."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lucerne._src.backends.cpu.gemm.amx import products
from lucerne._src.backends.cpu.gemm.amx.pack import IN_PARTS, IN_PARTS_TURNED, Wide
from lucerne._src.backends.cpu.gemm.amx.products import amx_plan, parts_work
from lucerne._src.backends.cpu.gemm.args import PLANNED
from lucerne._src.backends.cpu.gemm.plan import GemmProduct
from lucerne._src.backends.cpu.gemm.shape import describe
from tests.cpu.guarded import Guest
from tests.cpu.test_gemm_parts import FLOAT32, PLAIN_ROWS, TURNED, guest, plain
from tests.cpu.test_gemm_turned import multiply, threads

pytestmark = pytest.mark.skipif(
    not parts_work(), reason="this machine has no AMX tiles for bfloat16"
)

SIZES = [
    (64, 256, 784), (64, 256, 256), (256, 384, 64), (256, 256, 64), (65, 131, 777), (300, 145, 97),
]  # fmt: skip


def words(a: Guest, b: Guest, how: Wide) -> dict[str, int]:
    p: GemmProduct | None = describe(a._meta, b._meta, plain((a._meta.shape[0], b._meta.shape[1])))
    assert p is not None
    return dict(zip(PLANNED, amx_plan(FLOAT32, p, wide=how).words, strict=False))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(
    "rows", list(itertools.product((PLAIN_ROWS, TURNED), repeat=2)), ids="-".join
)
def test_the_bits_are_those_of_shared_packing(
    sizes: tuple[int, int, int], rows: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(0)
    a, b = guest(rng.standard_normal((m, k)), rows[0]), guest(rng.standard_normal((k, n)), rows[1])
    with threads(2):
        assert words(a, b, IN_PARTS)["OWN_B"]
        found = multiply(a, b, IN_PARTS)
    with threads(1):
        np.testing.assert_array_equal(found, multiply(a, b, IN_PARTS))
    monkeypatch.setattr(products, "_ALONE_FLOPS", 0)
    with threads(2):
        assert not words(a, b, IN_PARTS)["OWN_B"]
        np.testing.assert_array_equal(found, multiply(a, b, IN_PARTS))


@pytest.mark.parametrize("sizes", SIZES[:2], ids=str)
def test_turned_products_do_the_same(
    sizes: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(1)
    a, b = guest(rng.standard_normal((m, k))), guest(rng.standard_normal((k, n)), TURNED)
    with threads(2):
        assert words(a, b, IN_PARTS_TURNED)["OWN_B"]
        found = multiply(a, b, IN_PARTS_TURNED)
        monkeypatch.setattr(products, "_ALONE_FLOPS", 0)
        np.testing.assert_array_equal(found, multiply(a, b, IN_PARTS_TURNED))


def test_many_threads_share_what_they_pack() -> None:
    """Where each of many tasks would pack most of it again."""
    a, b = (guest(np.ones(shape)) for shape in ((256, 64), (64, 784)))
    with threads(4):
        found = words(a, b, IN_PARTS)
    assert not found["OWN_B"]
    assert found["B_SPACE"]
