"""Whole programs on the CPU engine: every way to run one gives what eager gives, to the bit."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import lucerne as torch
from lucerne import backends
from lucerne._src.backends.contract.step_runner import StepError, StepRunner, shape_of
from lucerne._src.backends.cpu.program import compile as making
from lucerne._src.backends.cpu.program import state as S
from lucerne._src.backends.cpu.program.runner import NativeRunner
from lucerne._src.ir import op as op_
from lucerne._src.ir.checks import lifetimes
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.program import ARENA, Place, Program
from lucerne._src.loops.run import make_runner
from tests.support.pace import fastest, slowness
from tests.support.programs import Sketch, fresh_results, pointwise_graph

F = torch.nn.functional
CPU: Any = backends.get("cpu")
needs_launch = pytest.mark.skipif(
    backends.fast_path() is None, reason="launch is part of the fast path, which is off"
)

Case = tuple[Program, list[Any], tuple[float, ...], Callable[..., list[Any]]]
"""The program, its arguments, its numbers, and the same written with eager calls."""


def mlp() -> Case:
    x, w, b, v = torch.randn(33, 20), torch.randn(24, 20), torch.randn(24), torch.randn(24, 7)
    s = Sketch()
    px, pw, pb, pv = (s.argument(t) for t in (x, w, b, v))
    h = s.call("nn.functional.linear", px, pw, pb)
    h = s.group(pointwise_graph(h.meta, "relu", "neg", "exp"), [h])
    h = s.call("batch_matmul", h, pv)
    s.call("mul", h, s.number(), result=True)
    return (
        s.done(),
        [x, w, b, v],
        (0.25,),
        lambda x, w, b, v, n: [((-F.relu(F.linear(x, w, b))).exp() @ v) * n],
    )


def two_results() -> Case:
    x = torch.randn(5, 6).t()
    s = Sketch()
    h = s.call("exp", s.argument(x))
    s.call("neg", h, result=True)
    s.call("sum", s.view(h, "transpose", 0, 1), (0,), False, None, result=True)
    return s.done(), [x], (), lambda x: [-x.exp(), x.exp().t().sum(0)]


def constant_and_part() -> Case:
    x, c = torch.randn(8, 12), torch.randn(6)
    s = Sketch()
    part = s.view(s.argument(x), "ops.aten.slice", 1, 3, 9, 1)
    h = s.call("add2", part, s.constant(c))
    s.call("mul", h, h, result=True)
    return s.done(), [x], (), lambda x: [(x[:, 3:9] + c) * (x[:, 3:9] + c)]


def written() -> Case:
    p, g = torch.randn(9, 3), torch.randn(9, 3)
    s = Sketch()
    pp, pg = s.argument(p), s.argument(g)
    s.call("add_scaled", pp, pg, s.number(), into=[pp])
    s.call("neg", pp, result=True)

    def eager(p: Any, g: Any, rate: float) -> list[Any]:
        p.add_(g, alpha=rate)
        return [-p]

    return s.done(), [p, g], (-0.1,), eager


def drawn() -> Case:
    x, generator = torch.randn(700), torch.Generator()
    generator.manual_seed(3)
    s = Sketch()
    h = s.call("neg", s.argument(x))
    noise = s.call("draw", h, "uniform", 0.0, 1.0, torch.float32, generator)
    s.call("add2", h, noise, result=True)

    def eager(x: Any) -> list[Any]:
        again = torch.Generator()
        again.manual_seed(3)
        return [-x + torch.empty(700).uniform_(0, 1, generator=again)]

    return s.done(), [x], (), lambda x: _seeded(generator, eager, x)


def _seeded(generator: Any, eager: Callable[..., list[Any]], x: Any) -> list[Any]:
    generator.manual_seed(3)  # for the run that comes after
    return eager(x)


def nothing_there() -> Case:
    x = torch.randn(0, 4)
    s = Sketch()
    h = s.call("exp", s.argument(x))
    s.call("sum", h, (0,), False, None, result=True)
    return s.done(), [x], (), lambda x: [x.exp().sum(0)]


def narrow() -> Case:
    x, w = (torch.randn(40, 64).bfloat16() for _ in range(2))
    s = Sketch()
    h = s.call("nn.functional.linear", s.argument(x), s.argument(w), None)
    s.group(pointwise_graph(h.meta, "neg", "relu"), [h], result=True)
    return s.done(), [x, w], (), lambda x, w: [F.relu(-F.linear(x, w))]


CASES = [mlp, two_results, constant_and_part, written, drawn, nothing_there, narrow]
WAYS = {
    "native": lambda p: CPU.assemble(p, ""),
    "poison": lambda p: CPU.assemble(p, "poison"),
    "guarded": lambda p: CPU.assemble(p, "guarded"),
    "step by step": lambda p: StepRunner(p, CPU),
    "reference": lambda p: StepRunner(p, backends.get("reference")),
}


def bits(t: Any) -> list[Any]:
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return t.contiguous().view(whole[t.dtype.itemsize]).tolist()  # type: ignore[no-any-return]


def assert_same_bits(got: Any, expected: Any) -> None:
    assert got.dtype is expected.dtype
    assert got.shape == expected.shape
    assert bits(got) == bits(expected)


def test_same_bits_tells_zeros_apart() -> None:
    assert_same_bits(torch.zeros(3), torch.zeros(3))
    with pytest.raises(AssertionError):
        assert_same_bits(torch.zeros(3), -torch.zeros(3))
    with pytest.raises(AssertionError):
        assert_same_bits(torch.zeros(3), torch.zeros(4))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_programs(case: Callable[[], Case], way: str) -> None:
    torch.manual_seed(0)
    program, arguments, numbers, eager = case()
    if way == "reference" and any(
        n.op.kind == "composite" for s in program.steps for n in s.graph.nodes
    ):
        with pytest.raises(StepError, match="no kernel for this composite"):
            WAYS[way](program)
        return
    runner = WAYS[way](program)
    for _ in range(3):
        copies = [t.clone() for t in arguments]
        expected = eager(*copies, *numbers)
        results = fresh_results(program)
        runner(arguments, numbers, results)
        for got, want in zip((*results, *arguments), (*expected, *copies), strict=True):
            if way == "reference":
                torch.testing.assert_close(got, want)
            else:
                assert_same_bits(got, want)


@needs_launch
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_launch(case: Callable[[], Case]) -> None:
    torch.manual_seed(0)
    program, arguments, numbers, eager = case()
    runner = make_runner(program, CPU)
    for split in (0, 1, len(arguments)):
        copies = [t.clone() for t in arguments]
        expected = eager(*copies, *numbers)
        before = [t._version for t in arguments]
        results = runner.launch(tuple(arguments[:split]), tuple(arguments[split:]), numbers)
        assert results is not None
        for got, want in zip((*results, *arguments), (*expected, *copies), strict=True):
            assert_same_bits(got, want)
        for i, (t, version) in enumerate(zip(arguments, before, strict=True)):
            assert t._version == version + (i in program.written)


def test_threads_change_no_bit() -> None:
    x, w = torch.randn(300, 400), torch.randn(350, 400)
    s = Sketch()
    h = s.call("nn.functional.linear", s.argument(x), s.argument(w), None)
    h = s.group(pointwise_graph(h.meta, "exp", "neg"), [h])
    s.call("sum", h, (1,), False, None, result=True)
    program = s.done()
    runner = make_runner(program, CPU)
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 2):
            torch.set_num_threads(threads)
            results = fresh_results(program)
            runner([x, w], (), results)
            found.append(results[0])
    finally:
        torch.set_num_threads(before)
    assert_same_bits(found[1], found[0])
    assert_same_bits(found[2], found[0])


# ---- what launch refuses -------------------------------------------------------------------------


class Odd(torch.Tensor):
    pass


def scaled(x: Any) -> Any:
    s = Sketch()
    s.call("mul", s.argument(x), s.number(), result=True)
    return make_runner(s.done(), CPU)


@needs_launch
def test_launch_takes_only_what_it_knows() -> None:
    x = torch.randn(4, 5)
    runner = scaled(x)
    assert_same_bits(runner.launch((x,), (), (2.0,))[0], x * 2)
    assert_same_bits(runner.launch((x,), (), (3,))[0], x * 3)
    refused: dict[str, tuple[Any, ...]] = {
        "a list": ([x], (), (2.0,)),
        "too few": ((), (), (2.0,)),
        "too many": ((x,), (x,), (2.0,)),
        "no number": ((x,), (), ()),
        "another shape": ((torch.randn(5, 4),), (), (2.0,)),
        "other strides": ((torch.randn(5, 4).t(),), (), (2.0,)),
        "another dtype": ((x.double(),), (), (2.0,)),
        "no tensor": ((1.0,), (), (2.0,)),
        "a subclass": ((x.as_subclass(Odd),), (), (2.0,)),
        "not a number": ((x,), (), ("2",)),
    }
    for what, given in refused.items():
        assert runner.launch(*given) is None, what
    assert_same_bits(runner.launch((x,), (), (2.0,))[0], x * 2)


@needs_launch
def test_launch_looks_at_requires_grad() -> None:
    x, p = torch.randn(4, 5), torch.nn.Parameter(torch.randn(4, 5))
    runner = scaled(x)
    assert runner.launch((p,), (), (2.0,)) is not None
    for wanted in (True, False):
        runner.expect([wanted])
        assert (runner.launch((p,), (), (2.0,)) is not None) == wanted
        assert (runner.launch((x,), (), (2.0,)) is None) == wanted


@needs_launch
def test_launch_refuses_written_memory_that_is_shared() -> None:
    program, (p, g), numbers, _ = written()
    runner = make_runner(program, CPU)
    both = torch.randn(20, 3)
    apart = both[:9], both[9:18]
    assert runner.launch(apart, (), numbers) is not None
    for first, second in ((both[:9], both[:9]), (both[:9], both[8:17]), (both[3:12], both[:9])):
        assert runner.launch((first, second), (), numbers) is None
    runner.expect(groups=[1, 1])
    assert runner.launch((both[:9], both[:9]), (), numbers) is not None
    runner.expect(groups=[1, 2])
    assert runner.launch((both[1:10], both[1:10]), (), numbers) is None
    assert runner.launch((p, g), (), numbers) is not None


@needs_launch
def test_launch_does_not_write_what_inference_mode_made() -> None:
    program, _, numbers, _ = written()
    runner = make_runner(program, CPU)
    with torch.inference_mode():
        made = torch.randn(9, 3)
    assert runner.launch((made, torch.randn(9, 3)), (), numbers) is None
    assert runner.launch((torch.randn(9, 3), made), (), numbers) is not None


@needs_launch
def test_launch_is_quick() -> None:
    """210 arguments: 1.4 us where this was written; the bound leaves room for slow machines."""
    parameters = tuple(torch.nn.Parameter(torch.randn(4, 4)) for _ in range(200))
    given = tuple(torch.randn(4, 4) for _ in range(10))
    s = Sketch()
    places = [s.argument(t) for t in (*parameters, *given)]
    s.call("add2", places[0], places[-1], result=True)
    runner = make_runner(s.done(), CPU)
    runner.expect([True] * 200 + [False] * 10)

    def launch() -> None:
        for _ in range(100):
            runner.launch(parameters, given)

    assert fastest(launch, 20) / 100 < 30e-6 * slowness()
    assert runner.launch(parameters, given) is not None


# ---- failures ------------------------------------------------------------------------------------


def looked_up() -> tuple[Any, Any, Any]:
    w, at = torch.randn(6, 8), torch.tensor([1, 5, 0])
    s = Sketch()
    pw, pat = s.argument(w), s.argument(at)
    h = s.call("neg", pw)
    s.call("embedding", h, pat, -1, False, False, result=True)
    return make_runner(s.done(), CPU), w, at


@pytest.mark.parametrize("launch", [False, pytest.param(True, marks=needs_launch)])
def test_a_failure_is_the_kernels_and_leaves_no_trace(launch: bool) -> None:
    runner, w, at = looked_up()

    def call(at: Any) -> Any:
        if launch:
            return runner.launch((w,), (at,))[0]
        results = fresh_results(runner.program)
        runner([w, at], (), results)
        return results[0]

    for bad in (6, 99):
        wrong = torch.tensor([1, bad, 0])
        with pytest.raises(IndexError) as eager:
            F.embedding(wrong, -w)
        with pytest.raises(IndexError) as found:
            call(wrong)
        assert str(found.value) == str(eager.value)
        assert_same_bits(call(at), (-w)[at])


def test_a_failing_host_step_is_raised() -> None:
    s = Sketch()
    x = torch.randn(4)
    s.call("neg", s.argument(x), result=True)
    program = s.done()

    def broken(inputs: Any, outputs: Any) -> None:
        raise ArithmeticError("broken")

    runner = NativeRunner(program, [broken], CPU.native)
    with pytest.raises(ArithmeticError, match="broken"):
        runner([x], (), fresh_results(program))
    if CPU.native is not None:
        with pytest.raises(ArithmeticError, match="broken"):
            runner.launch((x,), ())
        assert runner._state[S.BUSY] == 0


def test_wrong_steps_are_told() -> None:
    x = torch.randn(4, 5)
    s = Sketch()
    out = s.call("neg", s.argument(x), result=True)
    step = s.steps[0]
    wrong = [
        replace(step, inputs=()),
        replace(step, inputs=(2.0,)),
        replace(step, inputs=(replace(out, meta=x.t()._meta),)),
        replace(step, inputs=(replace(step.inputs[0], offset=2),)),
    ]
    for bad in wrong:
        with pytest.raises(ValueError, match="step neg"):
            make_runner(replace(s.done(), steps=[bad]), CPU)


def test_a_group_without_a_kernel_is_told() -> None:
    x = torch.randn(4, 4)
    graph = Graph()
    value = graph.input(x._meta)
    from_op = Sketch()
    from_op.argument(x)
    for name in ("batch_matmul", "batch_matmul"):
        op = op_.get(name)
        (value,) = graph.call(op, (value, value), [x._meta])
    graph.outputs = (value,)
    from_op.group(graph, [Place("argument", 0, 0, x._meta)], result=True)
    with pytest.raises(StepError, match="no kernel of this group"):
        make_runner(from_op.done(), CPU)


# ---- compiling -----------------------------------------------------------------------------------


def test_equal_steps_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(5, 7)
    s = Sketch()
    h = s.argument(x)
    for _ in range(6):
        h = s.call("exp", h)
        h = s.group(pointwise_graph(h.meta, "neg", "relu"), [h])
    s.call("neg", h, result=True)
    made: list[Any] = []
    real = making.executable_of
    monkeypatch.setattr(
        making, "executable_of", lambda g, b: made.append(shape_of(g)) or real(g, b)
    )
    make_runner(s.done(), CPU)
    assert len(made) == len(set(made)) == 3


def test_statics_of_other_types_are_not_equal() -> None:
    x = torch.randn(3)
    graphs = []
    for value in (1, 1.0, True, 0.0, -0.0):
        graph = Graph()
        v = graph.input(x._meta)
        graph.outputs = graph.call(op_.get("neg"), (v, value), [x._meta])
        graphs.append(shape_of(graph))
    assert len(set(graphs)) == 5


def test_progress_is_shown_when_it_takes_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for silent, shown in ((100.0, 0), (-1.0, 3)):
        monkeypatch.setattr(making, "SILENT_SECONDS", silent)
        monkeypatch.setattr(making, "EVERY_SECONDS", 0.0)
        progress = making.CompileProgress("compiling kernels", 2)
        progress.advance()
        progress.advance()
        progress.end()
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == shown
        assert all("compiling kernels: " in line for line in lines)


# ---- several threads of Python -------------------------------------------------------------------


def test_two_threads_share_a_runner() -> None:
    program, arguments, numbers, eager = mlp()
    runner = make_runner(program, CPU)
    expected = eager(*arguments, *numbers)[0]
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(50):
            launched = runner.launch((), tuple(arguments), numbers) if CPU.native else None
            results = fresh_results(program) if launched is None else launched
            if launched is None:
                runner(arguments, numbers, results)
            if bits(results[0]) != bits(expected):
                wrong.append(results[0])

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_long_stretches_run_without_pythons_lock() -> None:
    x, w = torch.randn(1024, 1024), torch.randn(1024, 1024)
    s = Sketch()
    s.call("batch_matmul", s.argument(x), s.argument(w), result=True)
    long = make_runner(s.done(), CPU)
    short = scaled(torch.randn(3))
    assert [segment[S.SEGMENT_RELEASE] for segment in long._segments] == [1]
    assert [segment[S.SEGMENT_RELEASE] for segment in short._segments] == [0]


# ---- kept weights --------------------------------------------------------------------------------

WRITES: dict[str, Callable[[Any], Any]] = {
    "in place": lambda w: w.add_(1.0),
    "through .data": lambda w: w.data.mul_(2.0),
    "through a view": lambda w: w[0].add_(1.0),
    "copy_": lambda w: w.copy_(torch.randn(w.shape).to(w.dtype)),
    "an element": lambda w: w.__setitem__((1, 2), 7.0),
}


@pytest.fixture(scope="module")
def heavy() -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    for dtype in (torch.float32, torch.bfloat16):
        x, w, v = (torch.randn(n).to(dtype) for n in ((256, 512), (768, 512), (768, 300)))
        s = Sketch()
        pw, pv, px = (s.argument(t) for t in (w, v, x))
        h = s.call("nn.functional.linear", px, pw, None)
        s.call("batch_matmul", h, pv, result=True)
        made[dtype] = make_runner(s.done(), CPU), x, w, v
    return made


@needs_launch
@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_weights_are_packed_until_they_are_written(
    heavy: dict[Any, Any], dtype: Any, how: str
) -> None:
    runner, x, w, v = heavy[dtype]
    w, v = w.clone(), v.clone()
    for _ in range(3):
        expected = fresh_results(runner.program)
        runner([w, v, x], (), expected)
        for uses in range(3):
            (found,) = runner.launch((w, v), (x,))
            assert_same_bits(found, expected[0])
            assert runner._kept[0].active <= (uses > 0)
        assert runner._kept[0].active
        WRITES[how](w)


@needs_launch
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_product_with_more_in_it_keeps_its_weight(dtype: Any) -> None:
    x, w, b = (torch.randn(n).to(dtype) for n in ((256, 512), (768, 512), (768,)))
    graph = Graph()
    values = [graph.input(t._meta) for t in (x, w, b)]
    out = torch.empty(256, 768, dtype=dtype)._meta
    value = graph.call(op_.get("nn.functional.linear"), tuple(values), [out])[0]
    graph.outputs = graph.call(op_.get("relu"), (value,), [out])
    s = Sketch()
    pw, pb, px = (s.argument(t) for t in (w, b, x))
    s.group(graph, [px, pw, pb], result=True)
    runner = make_runner(s.done(), CPU)
    for _ in range(2):
        expected = fresh_results(runner.program)
        runner([w, b, x], (), expected)
        for _ in range(3):
            assert_same_bits(runner.launch((w, b), (x,))[0], expected[0])
        assert [k.active for k in runner._kept] == [True]
        w.neg_()
    torch.testing.assert_close(expected[0], F.relu(F.linear(x, -w, b)), rtol=2e-2, atol=0.3)


@needs_launch
def test_a_weight_that_numpy_sees_is_not_kept(heavy: dict[Any, Any]) -> None:
    runner, x, w, v = heavy[torch.float32]
    w = w.clone()
    for _ in range(3):
        runner.launch((w, v), (x,))
    assert runner._kept[0].active
    seen = w.numpy()
    for value in (5.0, 6.0):
        seen[0] = value
        expected = fresh_results(runner.program)
        runner([w, v, x], (), expected)
        assert_same_bits(runner.launch((w, v), (x,))[0], expected[0])
        assert not runner._kept[0].active


@needs_launch
def test_an_argument_of_the_call_is_not_kept(heavy: dict[Any, Any]) -> None:
    runner, x, w, v = heavy[torch.float32]
    w = w.clone()
    for _ in range(3):
        runner.launch((w, v), (x,))
    assert runner._kept[0].active
    for _ in range(3):
        w.add_(1.0)
        expected = fresh_results(runner.program)
        runner([w, v, x], (), expected)
        assert_same_bits(runner.launch((), (w, v, x))[0], expected[0])
        assert not runner._kept[0].active


@needs_launch
def test_another_weight_at_the_same_address_is_seen(heavy: dict[Any, Any]) -> None:
    runner, x, _, v = heavy[torch.float32]
    for k in range(6):  # freed and allocated again: the allocator gives the same block
        w = torch.full((768, 512), float(k))
        expected = fresh_results(runner.program)
        runner([w, v, x], (), expected)
        for _ in range(2):
            assert_same_bits(runner.launch((w, v), (x,))[0], expected[0])
        del w


# ---- guard pages -------------------------------------------------------------------------------

CRIMES = {
    "writes behind its result": "ctypes.memset(place, 0, out._storage.nbytes + 65)",
    "writes before its result": "ctypes.memset(place - 65, 0, 65)",
    "reads a value that is no more": "ctypes.string_at(seen[0], 4) if seen else None",
}


@pytest.mark.parametrize("what", CRIMES)
def test_guard_pages_end_the_process(what: str) -> None:
    """A step of Python stands for a kernel with a mistake; only guarded memory notices."""
    text = f"""
import ctypes
import lucerne as torch
from lucerne._src.backends.cpu.program.assemble import executables
from lucerne._src.backends.cpu.program.guarded import GuardedRunner
from lucerne import backends
from tests.support.programs import Sketch, fresh_results
x = torch.randn(8, 8)
s = Sketch()
h = s.argument(x)
for _ in range(3):
    h = s.call("neg", h)
s.call("neg", h, result=True)
program, seen = s.done(), []
honest = executables(program.steps, backends.get("cpu"))[0]
def criminal(inputs, outputs):
    out = outputs[0]
    place = out._storage.data_ptr()
    honest(inputs, outputs)
    if SWITCH:
        {CRIMES[what]}
    seen.append(inputs[0]._storage.data_ptr())
runner = GuardedRunner(program, [honest, criminal, criminal, honest])
for _ in range(2):
    runner([x], (), fresh_results(program))
    seen.clear()
print("done")
"""
    for switch, ends in ((False, False), (True, True)):
        code = text.replace("SWITCH", str(switch))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (done.returncode < 0) == ends, done.stderr
        assert ("done" in done.stdout) != ends


# ---- lifetimes -----------------------------------------------------------------------------------


def reused() -> Sketch:
    """Three values, two of which have the same place at different times."""
    x = torch.randn(8, 8)
    s = Sketch()
    first = s.call("neg", s.argument(x))
    second = s.call("exp", first)
    s.call("abs", second, into=[first])
    s.call("neg", first, result=True)
    return s


def test_a_place_used_again_is_another_value() -> None:
    program = reused().done()
    values = lifetimes.arena_values(program)
    assert [(v.start, v.first, v.last) for v in values] == [(0, 0, 1), (256, 1, 2), (0, 2, 3)]
    x = torch.randn(8, 8)
    for way in ("native", "poison", "guarded"):
        results = fresh_results(program)
        WAYS[way](program)([x], (), results)
        assert_same_bits(results[0], -(-x).exp().abs())


def test_parts_that_are_read_together_are_one_value() -> None:
    x = torch.randn(4, 8)
    s = Sketch()
    p = s.argument(x)
    whole = s.room(torch.empty(8, 8)._meta)
    halves = [replace(whole, offset=at, meta=x._meta) for at in (0, 128)]
    for name, half in zip(("neg", "exp"), halves, strict=True):
        s.call(name, p, into=[half])
    s.call("abs", whole, result=True)
    program = s.done()
    (value,) = lifetimes.arena_values(program)
    assert (value.start, value.stop, value.first, value.last) == (0, 256, 0, 2)
    results = fresh_results(program)
    WAYS["guarded"](program)([x], (), results)
    assert_same_bits(results[0], torch.cat([-x, x.exp()]).abs())


def _at(place: Place, offset: int) -> Place:
    return replace(place, offset=offset)


def test_wrong_places_are_told() -> None:
    program = reused().done()
    lifetimes.check_places(program)
    steps = program.steps
    arena = steps[1].inputs[0]
    assert arena.kind == ARENA
    outside = replace(steps[1], inputs=(_at(arena, 512),))
    across = replace(steps[1], outputs=(_at(steps[1].outputs[0], 64),))
    read_only = replace(steps[3], outputs=steps[0].inputs)
    missing = replace(steps[3], outputs=(replace(steps[3].outputs[0], index=4),))
    for k, bad in ((1, outside), (1, across), (3, read_only), (3, missing)):
        with pytest.raises(lifetimes.ProgramError):
            lifetimes.check_places(replace(program, steps=[*steps[:k], bad, *steps[k + 1 :]]))
    with pytest.raises(lifetimes.ProgramError, match="were written before"):
        lifetimes.arena_values(replace(program, steps=steps[1:]))


def test_a_change_that_was_not_announced_is_found() -> None:
    program, arguments, numbers, _ = written()
    announced = WAYS["guarded"](program)
    announced(arguments, numbers, fresh_results(program))
    with pytest.raises(lifetimes.ProgramError, match="read-only"):
        WAYS["guarded"](replace(program, written=frozenset()))
