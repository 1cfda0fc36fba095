"""One program for all sizes: right at each, made without a pass, laid out as one for that size."""

from __future__ import annotations

import gc
import random
import threading
from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne._src.backends.cpu.gemm.amx.products import parts_work
from lucerne._src.backends.cpu.program.blocks import signed
from lucerne._src.backends.cpu.program.kept import form_of
from lucerne._src.backends.cpu.program.runner import NativeRunner
from lucerne._src.backends.cpu.program.sized_runner import SizedRunner
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.base.config import config
from tests.capture.rows_all_sizes import ROWS

SIZES = (6, 7, 11, 16, 25, 33, 40, 65)
LARGE = (64, 130, 257)
"""At night besides."""


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


@pytest.mark.nightly
@pytest.mark.parametrize("name", ROWS)
def test_large_sizes(name: str) -> None:
    fn, shapes = ROWS[name]
    compiled = torch.compile(fn, fullgraph=True)
    for n in (*SIZES[:3], *LARGE):
        given = tensors(shapes(n), n)
        assert_same(fn(*given), compiled(*given), (name, n))


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
    for n in SIZES[:6]:
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
    end = max(at + 8 * k.words for at, k in zip(blocks.addresses, runner._kernels, strict=True))
    patches = [  # (blocks of kernels that read packed weights come behind)
        [(w - first, offset) for w, offset in found if w not in idle and w < end]
        for found in blocks.patches
    ]
    numbers = [(i, letter, at - first) for i, letter, at in blocks.numbers]
    entries = [int(x) for x in list(runner._tables["steps"])[::2]]
    return [words, patches, numbers, entries, runner._buffers.workspace_at, runner._segments]


def assert_packed_as_for_one_size(runner: SizedRunner, made: list[Any]) -> None:
    """Kernels that read packed weights, their words as those of one for that size."""
    source = runner._source
    for _, uses in source.weights:
        for use in uses:
            if use.kernel is None:
                continue
            form = form_of(runner.program.steps[use.number], made[use.number], _LONG)
            assert form is not None
            theirs = form.make()
            assert theirs is not None
            assert runner._entries[use.entry] == theirs.entry
            assert runner._buffers.workspace >= theirs.workspace
            at = use.start + use.kernel.words - len(theirs.extra)
            words = runner._tables["blocks"][at : at + len(theirs.extra)]
            assert words.tolist() == [signed(w) for w in theirs.extra]


_LONG = NativeKernel(0, 0, 0, work=float("inf"))


@pytest.mark.parametrize("name", ROWS)
def test_laid_out_as_for_one_size(name: str) -> None:
    fn, shapes = ROWS[name]
    compiled = torch.compile(fn, fullgraph=True)
    for n in SIZES[:4]:
        compiled(*tensors(shapes(n), n))
    (sized,) = sized_of(compiled)
    tried = 0
    chosen = random.Random(name)
    for _ in range(12):
        version = chosen.choice(sized.versions)
        sizes = {k: chosen.choice(range(9, 25)) for k in version.names}
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
        spaces = ours._buffers.workspace, theirs._buffers.workspace
        assert spaces[0] == spaces[1] or (source.weights and spaces[0] > spaces[1]), sizes
        assert_packed_as_for_one_size(ours, made)
    assert tried or any(v.forward.late for v in sized.versions)


# ---- around the program --------------------------------------------------------------------------


def test_errors_have_the_sizes_of_the_call() -> None:
    def fn(x: Any, at: Any) -> Any:
        return x[at] * 2

    compiled = torch.compile(fn, fullgraph=True)
    for n in (6, 9, 12, 15):
        compiled(torch.randn(n, 3), torch.tensor([1, n - 1]))
    for n in (20, 21):
        given = torch.randn(n, 3), torch.tensor([1, n])
        with pytest.raises(IndexError) as ours:
            compiled(*given)
        with pytest.raises(IndexError) as theirs:
            fn(*given)
        assert str(ours.value) == str(theirs.value)


def test_checks_have_the_sizes_of_the_call() -> None:
    bag = torch.nn.EmbeddingBag(50, 8)
    compiled = torch.compile(bag, fullgraph=True)
    for n in (6, 9, 12, 15, 20):
        compiled(torch.arange(n), torch.tensor([0, n]))
        checks = compiled.forward.latest.captured.checks
        with pytest.raises(RuntimeError) as theirs:
            bag(torch.arange(n), torch.tensor([0, n + 1]))
        assert any(str(theirs.value).startswith(str(error())) for _, error in checks)


def test_weights_that_change_between_sizes() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 64)
    )
    compiled = torch.compile(model)
    sizes = [64, 72, 80, 96, 80, 96, 104]
    with torch.no_grad():
        for k, n in enumerate([n for n in sizes for _ in range(3)]):
            x = torch.randn(n, 256)
            assert_same(model(x), compiled(x), (k, n))
            if k % 4 == 3:
                model[0].weight.mul_(0.5)
            if k % 7 == 6:
                model[2].weight.data = torch.randn(64, 512)


def test_weights_that_change_after_they_were_packed() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 64)
    )
    compiled = torch.compile(model)
    with torch.no_grad():
        for n in (64, 72, 80, 96):
            compiled(torch.randn(n, 256))
        for k, n in enumerate((96, 80, 80, 96, 80) * 2):
            for _ in range(4):  # as it is, packed, packed
                x = torch.randn(n, 256)
                assert_same(model(x), compiled(x), (k, n))
            model[k % 2 * 2].weight.mul_(-1.5)


def test_a_step_with_dropout_and_an_optimizer() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(24, 24), torch.nn.Dropout(0.5))
    optimizer = torch.optim.Adam(model.parameters())

    @torch.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        out = model(x)
        loss = out.square().mean()
        loss.backward()
        optimizer.step()
        return (out == 0).float().mean()

    found = [float(step(torch.randn(n, 24))) for n in (40, 44, 48, 52, 56, 60, 60)]
    assert all(0.4 < share < 0.6 for share in found)
    assert found[-1] != found[-2]
    (sized,) = sized_of(step)
    assert not sized.one_size  # (the mean's divisor is no constant)
    assert sized.versions


@pytest.mark.skipif(not parts_work(), reason="this machine has no AMX tiles for bfloat16")
def test_a_step_that_updates_weights_behind_their_gradients() -> None:
    def trained(compile: Any) -> tuple[Any, list[Any]]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.ReLU())
        optimizer = torch.optim.AdamW(model.parameters())

        @compile
        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        torch.manual_seed(1)
        losses = [step(torch.randn(n, 128)) for n in (160, 176, 200, 224, 231, 250)]
        return step, [*losses, *model.parameters()]

    compiled, ours = trained(torch.compile)
    assert_same(trained(lambda f: f)[1], ours, "losses and weights")
    (sized,) = sized_of(compiled)
    assert not sized.one_size
    version = sized.versions[0]
    assert "batch_matmul+adam_update" in [s.name for s in version.forward.program.steps]


def test_views_of_arguments_and_sizes_are_returned() -> None:
    def fn(x: Any) -> Any:
        return x[1:], x.shape, x.shape[0] * 2, x.t()

    compiled = torch.compile(fn, fullgraph=True)
    for n in (5, 6, 7, 9, 12):
        x = torch.randn(n, 3)
        part, shape, twice, turned = compiled(x)
        assert (shape, twice) == (torch.Size((n, 3)), 2 * n)
        assert type(twice) is int
        part.zero_()
        assert not x[1:].any()
        assert turned.shape == (3, n)


def test_two_threads_at_other_sizes() -> None:
    fn = torch.compile(lambda x: (x @ x.t()).relu().sum(0))
    for n in (16, 20, 24):
        fn(torch.randn(n, 24))
    wrong: list[int] = []

    def work(first: int) -> None:
        for n in range(first, first + 30):
            x = torch.randn(n, 24)
            if not torch.allclose(fn(x), (x @ x.t()).relu().sum(0), atol=1e-4):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(k,)) for k in (30, 31, 45)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_sizes_that_were_not_used_for_long_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """And at once, with all they hold: no collection runs here."""
    monkeypatch.setattr(config, "most_instances", 8)
    model = torch.nn.Linear(24, 24)
    compiled = torch.compile(lambda x: model(x).relu().sum(0))
    gc.collect()
    gc.disable()
    try:
        for n in range(16, 80):
            compiled(torch.randn(n, 24))
        of_it = {id(v.forward) for s in sized_of(compiled) for v in s.versions}
        left = [x for x in gc.get_objects() if type(x) is SizedRunner and id(x._source) in of_it]
    finally:
        gc.enable()
    assert compiled.instances > 50
    first = len(of_it)  # (others are made like the first of a version)
    assert len(left) <= 8 + first
