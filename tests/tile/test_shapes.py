"""One machine code for many shapes, and block sizes chosen by trying."""

from __future__ import annotations

import functools
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne as torch
from lucerne import tiles
from lucerne._src.backends.cpu.rules import tile as rules
from lucerne._src.base.process.sealed_folder import Cache
from lucerne._src.ir.tile import TileSizes
from lucerne._src.tensor.eager import plans
from lucerne._src.tiles import tuning
from tests.tile.kernels import BLOCK, BY_NAME, WIDE, matmul, prepared, rms_norm


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Keys of the machine code that calls ask for, in order."""
    plans.clear_plans()  # of other tests: who has a plan asks for no code
    found: list[Any] = []
    made = rules.compiled

    def noted(key: Any, write: Any) -> Any:
        found.append(key)
        return made(key, write)

    monkeypatch.setattr(rules, "compiled", noted)
    return found


def test_a_kernel_over_blocks_has_few_codes_for_all_shapes(codes: list[Any]) -> None:
    for k in range(12):
        a = torch.randn(BLOCK + 3 + 2 * k, 2 * WIDE + 1 + k)
        b = torch.randn(2 * WIDE + 1 + k, WIDE + 7 + 3 * k)
        assert torch.allclose(matmul(a, b), a @ b, atol=1e-3)
    assert len(codes) == 12
    assert len(set(codes)) <= 4


def test_a_kernel_over_rows_has_one_code_for_any_number_of_rows(codes: list[Any]) -> None:
    w = torch.randn(37)
    for rows in (2, 3, 64, 1000):
        x = torch.randn(rows, 37)
        wanted = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w
        assert torch.allclose(rms_norm(x, w, 1e-6), wanted, atol=1e-5)
    assert len(set(codes)) == 1
    rms_norm(torch.randn(2, 38), torch.randn(38), 1e-6)
    assert len(set(codes)) == 2


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 70), st.booleans())
def test_products_of_any_size_and_layout(n: int, m: int, k: int, turned: bool) -> None:
    a = torch.randn(n, k)
    b = torch.randn(m, k).t() if turned else torch.randn(k, m)
    assert torch.allclose(matmul(a, b), a @ b, atol=1e-3)


def test_strides_are_given_and_those_of_vectors_are_not(codes: list[Any]) -> None:
    wide = torch.randn(40, 90)
    w = torch.randn(30)
    for x in (wide[:, :30], wide[:20, 30:60], wide[::2, :30], wide[:, ::3]):
        wanted = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w
        assert torch.allclose(rms_norm(x, w, 1e-6), wanted, atol=1e-5)
    assert len(set(codes[:3])) == 1
    assert codes[3] != codes[0]  # its elements don't lie side by side


def test_equal_keys_mean_equal_patterns() -> None:
    """What is equal in one program is equal in the other: code may have compared it."""

    @tiles.kernel(out=lambda a, b: tiles.like(a), grid=1)
    def both(a: tiles.In, b: tiles.In, y: tiles.Out) -> None:
        for i in tiles.range(0, a.shape[0], 8):
            tiles.store(y[i : i + 8], a[i : i + 8] + b[i : i + 8])

    def key(n: int, m: int) -> str:
        return TileSizes(both.program({"a": torch.ones(n), "b": torch.ones(m)}), 1).key

    assert key(9, 11) == key(10, 13)
    assert key(9, 9) == key(10, 10)
    assert key(9, 9) != key(9, 11)
    assert key(16, 16) != key(9, 9)


def test_an_access_outside_is_refused_for_each_shape() -> None:
    """The proof is made anew, also where the code is there already."""

    @tiles.kernel(grid=lambda x: x.shape[0] // 2)
    def pairs(x: tiles.In, y: tiles.Out) -> None:
        i = tiles.program_id(0)
        tiles.store(y[i, :], x[i + 3, :])

    assert torch.equal(pairs(torch.ones(6, 4))[:3], torch.ones(3, 4))
    for rows in (4, 3):
        with pytest.raises(tiles.TileError, match=f"has size {rows}"):
            pairs(torch.ones(rows, 4))


def test_an_index_that_is_data_is_held_to_the_size_of_the_call() -> None:
    kernel = BY_NAME["cross_entropy"].kernel
    for classes in (5, 9, 7):
        args = prepared(BY_NAME["cross_entropy"], 4, classes, torch.float32, "dense")
        kernel(*args, *BY_NAME["cross_entropy"].numbers)
        target = next(a for a in args if not a.is_floating_point())
        for wrong in (classes, -1):
            target[2] = wrong
            with pytest.raises(IndexError, match="out of bounds"):
                kernel(*args, *BY_NAME["cross_entropy"].numbers)


# ---- choosing -----------------------------------------------------------------------------------

CHOICES = [{"B": 4}, {"B": 8}, {"B": 16}]


def tuned(**options: Any) -> Any:
    @tiles.autotune(CHOICES, **options)
    @tiles.kernel(grid=lambda x, B: -(-x.shape[0] // B))
    def shifted(x: tiles.In, y: tiles.Out, by: float, B: int) -> None:
        i = tiles.program_id(0) * B
        tiles.store(y[i : i + B], x[i : i + B] + by)

    return shifted


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """Makes 8 the fastest; lists what was tried. Choices go to a folder of the test."""
    tried: list[int] = []

    def seconds(self: Any, values: dict[str, Any], best: float) -> float:
        tried.append(values["B"])
        self.kernel.run(values)
        return abs(values["B"] - 8) + 1.0

    # (No function of ours: one that reads files in a traced call would be a break.)
    folder = functools.cache(partial(Cache, str(tmp_path / "tiles"), 1 << 20, ".choice", "choices"))
    monkeypatch.setattr(tuning.Tuned, "_seconds", seconds)
    monkeypatch.setattr(tuning, "_folder", folder)
    return tried


def test_the_fastest_is_chosen_once_for_alike_calls(timed: list[int]) -> None:
    kernel = tuned()
    for n in (30, 31, 20):
        assert torch.equal(kernel(torch.ones(n), 2.0), torch.full((n,), 3.0))
    assert timed == [4, 8, 16]
    assert list(kernel.choices.values()) == [{"B": 8}]
    kernel(torch.ones(40), 2.0)
    assert len(timed) == 6


def test_choices_are_remembered_for_the_next_process(timed: list[int]) -> None:
    tuned()(torch.ones(30), 2.0)
    again = tuned()
    again(torch.ones(30), 2.0)
    assert timed == [4, 8, 16]
    assert list(again.choices.values()) == [{"B": 8}]
    again.choices.clear()
    again.configs = [{"B": 32}, {"B": 64}]  # other choices: what was remembered is not one
    again(torch.ones(30), 2.0)
    assert timed[3:] == [32, 64]


def test_a_key_of_ones_own(timed: list[int]) -> None:
    kernel = tuned(key=lambda x: x.shape[0] > 100)
    for n in (10, 50, 90, 200, 300):
        kernel(torch.ones(n), 1.0)
    assert len(timed) == 6
    assert set(kernel.choices) == {"False", "True"}


def test_captured_functions_take_what_is_known(timed: list[int]) -> None:
    kernel = tuned()
    fn = torch.compile(lambda x: kernel(x, 1.0) * 2)
    assert torch.equal(fn(torch.ones(30)), torch.full((30,), 4.0))
    assert timed == []
    kernel(torch.ones(30), 1.0)
    torch.compile(lambda x: kernel(x, 1.0))(torch.ones(30))
    assert timed == [4, 8, 16]


def test_choices_that_do_not_compile_are_left_out() -> None:
    @tiles.autotune([{"B": 200_000}, {"B": 8}])
    @tiles.kernel(grid=lambda x, B: -(-x.shape[0] // B))
    def kept(x: tiles.In, y: tiles.Out, B: int) -> None:
        i = tiles.program_id(0) * B
        tiles.store(y[i : i + B], tiles.cumsum(x[i : i + B]))

    assert kept.choice({"x": torch.ones(8)}) == {"B": 8}
    kept.configs, kept.choices = [{"B": 200_000}], {}
    with pytest.raises(tiles.TileError, match="bytes"):
        kept(torch.ones(9))


def test_mistakes_are_told() -> None:
    with pytest.raises(TypeError, match=r"put @tiles\.kernel below"):
        tiles.autotune(CHOICES)(lambda x: x)
    with pytest.raises(TypeError, match="no parameter of"):
        tiles.autotune([{"C": 4}])(tuned().kernel)
    with pytest.raises(TypeError, match="same parameters"):
        tiles.autotune([{"B": 4}, {"C": 4}])(tuned().kernel)
