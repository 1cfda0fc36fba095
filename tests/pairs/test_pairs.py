"""A sample of the pairs and trees, the table itself, and faults that both net and verifier find."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lucerne as torch
from lucerne import backends
from lucerne._src.backends.cpu.conv import direct, epilogue
from lucerne._src.backends.cpu.fused import program
from lucerne._src.backends.cpu.runtime import code, disk
from lucerne._src.base.config import config
from lucerne._src.base.process.sealed_folder import Cache
from lucerne._src.ir.checks import index_maps
from lucerne._src.ir.checks.fused_reads import REPEATED
from lucerne._src.loops import group
from tests.pairs import programs
from tests.pairs.__main__ import main
from tests.pairs.check import AROUND, LEFT_OUT, RIGHT, WRONG, Around, checked
from tests.pairs.functions import CORE, TEXTS, function, functions, operands
from tests.pairs.programs import BASES, FORMS, Program, Tree, pair_count, pairs, tree

TIERS = Path(__file__).parents[1] / "conformance" / "data" / "op_tiers.json"
GOOD = (RIGHT, LEFT_OUT)


def found(wanted: list[Program], around: str = "") -> list[str]:
    made = {p.name: checked(p, around) for p in wanted}
    assert sum(f.what == RIGHT for f in made.values()) * 3 >= len(made), "most of them ran"
    return [f"{name}: {f.what}, {f.text}" for name, f in made.items() if f.what not in GOOD]


# ---- the sample ----------------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(0, 90, 30))
def test_pairs(first: int) -> None:
    assert not found(list(pairs(range(first, first + 30))))


@pytest.mark.parametrize("base", [b for b in BASES if b != "4x6"])
def test_pairs_of_other_shapes_and_layouts(base: str) -> None:
    start = 1000 + 10 * list(BASES).index(base)
    assert not found(list(pairs(range(start, start + 6), base)))


@pytest.mark.parametrize("wide", [False, True])
def test_trees(wide: bool) -> None:
    made = functions()
    assert not found([tree(seed, made, wide=wide) for seed in range(20 if wide else 40)])


@pytest.mark.parametrize("around", [a for a in AROUND if a])
def test_ways_of_calling(around: str) -> None:
    start = 2000 + 20 * list(AROUND).index(around)
    problems = [checked(p, around) for p in pairs(range(start, start + 12))]
    assert any(f.what == RIGHT for f in problems)
    assert not [f for f in problems if f.what not in GOOD]


# ---- the table -----------------------------------------------------------------------------------

SPELLED = {
    "__getitem__": "v[0]", "__rpow__": "2. **", "__rsub__": "1. -", "__rdiv__": "1. /", "T": "v.T ",
    "int": "v.int()", "to": "v.to(", "slice": "aten.slice(", "uniform": ".uniform_(",
    "fill": ".fill_(",
}  # fmt: skip
"""Ops that are not written as a call of their name."""


def occurs(op: str, text: str) -> bool:
    if op in SPELLED:
        return SPELLED[op] in text
    prefix = r"F\." if op.startswith("nn.functional.") else r"\."
    return re.search(rf"{prefix}{re.escape(op.rpartition('.')[2])}\(", text) is not None


def test_every_op_of_the_first_tier_occurs() -> None:
    tier = json.loads(TIERS.read_text())["T0"]
    assert len(tier) >= 170
    assert not [op for op in tier if not any(occurs(op, t) for t in TEXTS.values())]


def test_an_op_that_does_not_occur_is_missed() -> None:
    assert not any(occurs("nn.functional.grid_sample", t) for t in TEXTS.values())
    assert not occurs("sum", "v.cumsum(0)")


def test_table_size() -> None:
    assert len(CORE) >= 120
    assert set(CORE) <= TEXTS.keys()
    assert pair_count() == 3 * len(CORE) ** 2


def test_all_pairs_are_listed_once() -> None:
    names = [p.name for p in pairs(range(pair_count()))]
    assert len(set(names)) == pair_count()


def test_seed_gives_the_same_tree() -> None:
    made = functions()
    assert tree(5, made).name == tree(5, made).name
    assert {tree(s, made).name.count("(") > 2 for s in range(8)} == {True}


def test_a_tree_that_occurs_twice_is_one_value() -> None:
    calls: list[int] = []

    def counted(v: Any) -> Any:
        calls.append(1)
        return v + 1

    twice = Tree("c", (Tree("x"),))
    Tree("+", (twice, twice)).value(torch.ones(2), {"c": counted}, {})
    assert calls == [1]


# ---- the tools fail when they should -------------------------------------------------------------


def test_a_wrong_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, compiled: Any) -> Any:
        return f if compiled is not torch.compile else lambda x: f(x) * 1.01

    monkeypatch.setitem(AROUND, "wrong", Around(wrong))
    assert checked(Program("", lambda x: x * 2), "wrong").what == WRONG


def test_a_wrong_gradient_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(f: Any, compiled: Any) -> Any:
        return f if compiled is not torch.compile else lambda x: f(x.detach()) + x - x.detach()

    monkeypatch.setitem(AROUND, "wrong", Around(wrong))
    assert checked(Program("", lambda x: x * 2), "wrong").what == WRONG


def test_an_error_inside_the_compiler_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(graph: Any) -> Any:
        raise KeyError("planted")

    backend = backends.get("cpu")
    monkeypatch.setattr(backend, "fuses_groups", broken)
    assert "planted" in checked(Program("", lambda x: (x * 2).sin() + 1)).text


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["--pairs", "0:2", "--trees", "0:1"]) == 0
    told = capsys.readouterr().out
    assert "pairs to 2: " in told
    assert "trees to 1: " in told
    assert " 0 wrong, 0 raises" in told


# ---- planted faults ------------------------------------------------------------------------------


def _blind(made: Any, shape: Any, byte_strides: Any, offset: int) -> Any:
    """A0: what becomes of a value's dimensions is not asked, so `v[0]` is read as `v`."""
    of_step = {s: d for d, (n, s) in enumerate(zip(made.shape, made.byte_strides, strict=True))
               if n != 1}  # fmt: skip
    if offset or any(
        s and s not in of_step for n, s in zip(shape, byte_strides, strict=True) if n > 1
    ):
        return None
    return tuple(
        None if n == 1 else REPEATED if not s else of_step[s]
        for n, s in zip(shape, byte_strides, strict=True)
    )


def plant_leading_part(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(program, "dims_read", _blind)
    patch.setattr(group, "dims_read", _blind)


def plant_overlapping_epilogue(patch: pytest.MonkeyPatch) -> None:
    """A2: vectors run over columns, though those of the flattened target are not neighbours."""
    patch.setattr(epilogue, "runs_across", lambda target: False)


def plant_flat_epilogue(patch: pytest.MonkeyPatch) -> None:
    """The ops behind a 3-d convolution stay at depth 0."""
    for module in (epilogue, direct):
        patch.setattr(module, "BLOCK_STARTS", "NCHW")


def plant_diagonal(patch: pytest.MonkeyPatch) -> None:
    """`v + v.T`: one axis for both dimensions of v."""
    patch.setattr(program.FusedProgram, "_check_axes_apart", lambda self: None)


FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str, str, str]] = {
    "A0, a leading part": (plant_leading_part, "y + b(y), y = a(2x)", "mul2", "first"),
    "A2, overlapping strides": (plant_overlapping_epilogue, "b(a(x))", "pixelb", "mul2"),
    "depth 0": (plant_flat_epilogue, "b(a(x))", "conv3d", "mul2"),
    "the diagonal": (plant_diagonal, "b(a(x))", "sym", "sum"),
}


@pytest.fixture
def no_kernels_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are made anew, and none of these is kept."""
    monkeypatch.setattr(disk, "cache_of_process", lambda: Cache("", 0))
    monkeypatch.setattr(config, "program_cache", False)
    forget_kernels(monkeypatch)


def forget_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = backends.get("cpu")
    monkeypatch.setattr(backend, "_fused", {})
    monkeypatch.setattr(backend, "_verified", set())
    monkeypatch.setattr(code, "_codes", {})


def pair(form: str, a: str, b: str) -> Program:
    made = functions()
    return Program(f"{form} with {a}, {b}", FORMS[form](made[a], made[b]))


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.usefixtures("no_kernels_of_before")
def test_the_net_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the verifier: numbers differ."""
    plant, *which = FAULTS[name]
    monkeypatch.setattr(config, "verify_fusion", False)
    assert checked(pair(*which)).what == RIGHT
    forget_kernels(monkeypatch)
    plant(monkeypatch)
    result = checked(pair(*which))
    assert result.what == WRONG
    assert "verifier" not in result.text


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.usefixtures("no_kernels_of_before")
def test_the_verifier_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel is not used: a warning, and the right numbers."""
    plant, *which = FAULTS[name]
    plant(monkeypatch)
    monkeypatch.setattr(index_maps, "FAILURES", [])
    wanted = pair(*which)
    result = checked(wanted)
    assert result.what == WRONG
    assert "verifier" in result.text
    x = programs.given("4x6")
    forget_kernels(monkeypatch)
    with pytest.warns(RuntimeWarning, match="a fused kernel is not used"):
        got = torch.compile(wanted.call)(x)
    assert torch.allclose(got, wanted.call(x), rtol=1e-4, atol=1e-5)


def test_no_text_is_without_effect() -> None:
    """Each row gives a tensor of numbers for some input."""
    space, dead = operands(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, text in TEXTS.items():
            made, worked = function(f"f_{name}", text, space), False
            for base in BASES:
                try:
                    worked = worked or made(programs.given(base)).numel() > 0
                except Exception:
                    continue
            if not worked:
                dead.append(name)
    assert not dead
