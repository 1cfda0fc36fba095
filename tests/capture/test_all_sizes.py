"""One program for all sizes: right at each, made without a pass, laid out as one for that size."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne._src.backends.cpu.program.runner import NativeRunner
from lucerne._src.backends.cpu.program.sized import SizedRunner
from lucerne._src.base.config import config
from tests.capture.rows_all_sizes import ROWS

SIZES = (6, 7, 11, 16, 25, 33, 40, 64, 65, 130)


def tensors(shapes: Any, seed: int = 0) -> list[Any]:
    torch.manual_seed(seed)
    return [torch.randn(*shape) for shape in shapes]


def flat(x: Any) -> list[Any]:
    return [y for part in x for y in flat(part)] if isinstance(x, tuple | list) else [x]


def assert_same(a: Any, b: Any, told: Any) -> None:
    for x, y in zip(flat(a), flat(b), strict=True):
        if x is None or y is None:
            assert x is y, told
            continue
        assert x.shape == y.shape, told
        assert torch.allclose(x, y, rtol=1e-4, atol=1e-4), told


def sized_of(compiled: Any) -> list[Any]:
    return [s for family in compiled.families.members for s in family.sized]


@pytest.mark.parametrize("name", ROWS)
def test_every_size(name: str) -> None:
    fn, shapes = ROWS[name]
    compiled = torch.compile(fn, fullgraph=True)
    for n in SIZES:
        given = tensors(shapes(n), n)
        assert_same(fn(*given), compiled(*given), (name, n))
    (sized,) = sized_of(compiled)
    assert not sized.one_size
    assert sized.versions
    assert compiled.traces == 2
    made = len(sized.versions)
    assert made < len(SIZES) - 2, [v.decisions for v in sized.versions]


@pytest.mark.parametrize("name", ROWS)
def test_with_gradients(name: str) -> None:
    fn, shapes = ROWS[name]

    def step(*given: Any) -> Any:
        out = [t for t in flat(fn(*given)) if t.requires_grad]
        return sum(t.float().square().sum() for t in out)

    compiled = torch.compile(fn, fullgraph=True)
    if not any(
        t.requires_grad for t in flat(fn(*[t.requires_grad_() for t in tensors(shapes(8))]))
    ):
        pytest.skip("it has no gradient")
    for n in SIZES[:7]:
        ours, theirs = tensors(shapes(n), n), tensors(shapes(n), n)
        for t in (*ours, *theirs):
            t.requires_grad_()
        step(*theirs).backward()
        out = [t for t in flat(compiled(*ours)) if t.requires_grad]
        sum(t.float().square().sum() for t in out).backward()
        assert_same([t.grad for t in theirs], [t.grad for t in ours], (name, n))
    assert sized_of(compiled)
    for sized in sized_of(compiled):
        assert not sized.one_size
    assert any(sized.versions for sized in sized_of(compiled))


@pytest.mark.parametrize("name", ["linear", "attention", "columns", "convolution", "written over"])
def test_memory_of_its_own_for_every_value(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "program_memory", "guarded")
    fn, shapes = ROWS[name]
    compiled = torch.compile(fn, fullgraph=True)
    for n in SIZES[:7]:
        given = tensors(shapes(n), n)
        assert_same(fn(*given), compiled(*given), (name, n))


# ---- as a program for one size is laid out -------------------------------------------------------


def blocks_of(runner: NativeRunner) -> list[Any]:
    """All that machine code reads, but for where things lie."""
    blocks = runner._blocks
    words = []
    first = min(blocks.addresses)
    pointed = {word for found in blocks.patches for word, _ in found}
    for at, kernel in zip(blocks.addresses, runner._kernels, strict=True):
        assert kernel is not None
        size = kernel.words
        read = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_int64 * size).from_address(at))
        skipped = [k for k in range(size) if at + 8 * k in pointed]
        kept = np.array(read)
        kept[skipped] = 0
        words.append(kept.tolist())
    idle = {
        at + 8 * (kernel.outputs + kernel.tensors)
        for at, kernel in zip(blocks.addresses, runner._kernels, strict=True)
        if kernel is not None and not kernel.workspace
    }  # (a kernel that needs no workspace at this size)
    patches = [
        [(w - first, offset) for w, offset in found if w not in idle] for found in blocks.patches
    ]
    numbers = [(i, letter, at - first) for i, letter, at in blocks.numbers]
    entries = [int(x) for x in list(runner._tables["steps"])[::2]]
    return [words, patches, numbers, entries, runner._buffers.scratch_bytes, runner._segments]


@pytest.mark.parametrize("name", ROWS)
def test_laid_out_as_for_one_size(name: str) -> None:
    fn, shapes = ROWS[name]
    compiled = torch.compile(fn, fullgraph=True)
    for n in SIZES[:4]:
        compiled(*tensors(shapes(n), n))
    (sized,) = sized_of(compiled)
    tried = 0
    chosen = random.Random(name)
    for _ in range(60):
        version = chosen.choice(sized.versions)
        sizes = {k: chosen.randrange(2, 60) for k in version.names}
        if version.forward.late or not version.holds(sizes):
            continue
        tried += 1
        given = list(sizes.values())
        source = version.forward
        ours, _ = source.at(given)
        assert isinstance(ours, SizedRunner)
        count = len(source.made)
        made = [source.executable_at(k, given) for k in range(count)]
        theirs = NativeRunner(source.program_at(given), made, source.native)
        ours._kernels = theirs._kernels
        assert blocks_of(ours) == blocks_of(theirs), sizes
    assert tried or any(v.forward.late for v in sized.versions)
