"""Shadow mode finds planted faults, names them, and is silent about right programs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne._src.backends.contract.backend import Runner
from lucerne._src.base import dtype as dt
from lucerne._src.capture.cache.entry import CacheEntry, Guards
from lucerne._src.capture.shadow.eagerly import EagerComposites
from lucerne._src.capture.shadow.nearness import NearnessRule
from lucerne._src.capture.shadow.replay import is_settled
from lucerne._src.capture.shadow.shadowing import ShadowError
from lucerne._src.ir import op
from lucerne._src.ir.graph import Node
from lucerne._src.pipeline import passes
from lucerne._src.tensor.eager import composite, plans
from lucerne._src.transforms.rewrite import GraphBuilder
from tests.compiler.mutants import changed
from tests.shadow.more import MORE
from tests.shadow.planted import ALL, RIGHT, ROOT, Row, refused, score
from tests.shadow.programs import BITWISE, ROWS, calls

RAISE = {"shadow": 2, "shadow_action": "raise"}
QUICK = (
    "numbers",
    "writes",
    "swapped",
    "views",
    "backward",
    "dropping",
    "gradients_inside",
    "sizes",
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# ---- silence


@pytest.mark.parametrize("made", [r for r in ROWS if r.__name__ in QUICK], ids=lambda r: r.__name__)
def test_right_programs_are_silent(made: Any) -> None:
    for compiled, args in calls(made, 0, options=dict(RAISE)):
        compiled(*args)
        assert compiled.given_up is None


@pytest.mark.nightly
@pytest.mark.parametrize("made", ROWS, ids=lambda r: r.__name__)
def test_all_right_programs_are_silent(made: Any) -> None:
    for mode in (None, "bitwise") if made in BITWISE else (None,):
        for compiled, args in calls(made, 1, options=dict(RAISE), mode=mode):
            compiled(*args)
            assert compiled.given_up is None


def test_calls_after_the_compared_ones_run_alone() -> None:
    f: Any = torch.compile(lambda x: x * 2, options={"shadow": 2})
    x = torch.ones(3)
    for _ in range(2):
        f(x)
        assert f.entries[0].shadow is not None
    assert torch.equal(f(x), x * 2)
    assert f.entries[0].shadow is None
    assert f.entries[0].flat == 1  # the shortcut is back


def test_state_is_that_of_one_call() -> None:
    """Two runs of one call leave behind what one does."""
    torch.manual_seed(0)
    weight = torch.randn(4, requires_grad=True)
    momentum = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    log: dict[str, Any] = {}

    def step(x: Any) -> Any:
        momentum.zero_grad()
        loss = (weight * x).sum().square()
        loss.backward()
        momentum.step()
        log["last"] = loss.detach()
        return loss.detach()

    before = weight.detach().clone()
    x = torch.randn(4)
    want = [step(x) for _ in range(3)]
    after, buffer = weight.detach().clone(), momentum.state[weight]["momentum_buffer"].clone()
    with torch.no_grad():
        weight.copy_(before)
    momentum.state.clear()
    compiled: Any = torch.compile(step, options=dict(RAISE))
    got = [compiled(x) for _ in range(3)]
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(weight.detach(), after)
    torch.testing.assert_close(momentum.state[weight]["momentum_buffer"], buffer)
    torch.testing.assert_close(log["last"], want[-1])


# ---- planted faults


def _pass(name: str, wrong: Callable[[GraphBuilder, Node], bool]) -> passes.Pass:
    """A pass that does something to the nodes it likes (`wrong` says whether it did)."""

    def run(graph: Any, setting: Any) -> Any:
        builder = GraphBuilder(graph)
        for node in graph.nodes:
            if not wrong(builder, node):
                builder.keep(node)
        return builder.finish()

    return passes.Pass(name, "forgets", "a bug", run)


def _forgets_minus(builder: GraphBuilder, node: Node) -> bool:
    if node.op is op.get("neg"):
        builder.replace(node.outputs[0], builder.read(node.args[0]))
        return True
    return False


def _doubles(x: Any, y: Any) -> Any:
    far = (x - y).abs()
    near = -far
    return near.exp()


PAIR = (torch.arange(3.0), torch.ones(3))


@pytest.fixture
def _wrong_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = (*passes.PASSES, _pass("forgets_minus", _forgets_minus))
    monkeypatch.setattr(passes, "PASSES", listed)


@pytest.mark.usefixtures("_wrong_pass")
def test_a_wrong_pass_is_named_with_op_and_line() -> None:
    with pytest.raises(ShadowError) as caught:
        torch.compile(_doubles, options=dict(RAISE))(*PAIR)
    found = caught.value.finding
    assert (found.stage, found.op) == ("forgets_minus", "neg")
    assert found.line.startswith(__file__)
    assert found.place is not None
    assert found.place.line == _doubles.__code__.co_firstlineno + 2
    assert "disable" in found.advice()


@pytest.mark.usefixtures("_wrong_pass")
def test_a_difference_warns_and_goes_on_right() -> None:
    f: Any = torch.compile(_doubles, options={"shadow": 1})
    with pytest.warns(UserWarning, match="shadow mode: _doubles compiled gives other numbers"):
        got = f(*PAIR)
    assert torch.equal(got, _doubles(*PAIR))
    assert torch.equal(f(*PAIR), got)  # and from then on, silently


@pytest.mark.usefixtures("_wrong_pass")
def test_the_script_shows_the_fault(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ShadowError) as caught:
        torch.compile(_doubles, options=dict(RAISE))(*PAIR)
    exec(caught.value.finding.script, {})
    assert capsys.readouterr().out.endswith("DIFFERENT\n")


def _finding(f: Any, *args: Any, **options: Any) -> Any:
    compiled = torch.compile(f, options={**RAISE, **options})
    with pytest.raises(ShadowError) as caught:
        compiled(*args)
    return caught.value.finding


def test_results_that_are_not_the_program_s(monkeypatch: pytest.MonkeyPatch) -> None:
    run = CacheEntry.run
    monkeypatch.setattr(CacheEntry, "run", lambda *args: run(*args) + 1)
    found = _finding(lambda x: x.sin() * 2, torch.ones(3))
    assert (found.stage, found.op) == ("results", "mul")


def test_a_program_that_is_not_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    made = CacheEntry.__init__

    def wrong(self: CacheEntry, captured: Any, guards: Any, runner: Any, *rest: Any) -> None:
        class Wrong(Runner):
            def __call__(self, arguments: Any, numbers: Any, results: Any) -> None:
                runner(arguments, numbers, results)
                results[0].add_(1)

        made(self, captured, guards, Wrong(), *rest)

    monkeypatch.setattr(CacheEntry, "__init__", wrong)
    found = _finding(lambda x: x.sin() * 2, torch.ones(3))
    assert (found.stage, found.op) == ("assembly", "mul")


def test_a_version_used_for_another_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guards, "hold", lambda *args: True)
    f: Any = torch.compile(lambda x, k: x * k, options=dict(RAISE))
    f(torch.ones(3), 2)
    with pytest.raises(ShadowError) as caught:
        f(torch.ones(3), 3)
    assert (caught.value.finding.stage, caught.value.finding.op) == ("guards", "mul")


def test_a_function_that_changes_its_mind() -> None:
    """Something that no guard can see: the graph is not what the function does now."""
    ticks = iter(range(100))

    class Clock:
        __slots__ = ()

        def now(self) -> int:
            return next(ticks)

    clock = Clock()
    found = _finding(lambda x: x + clock.now(), torch.ones(3))
    assert found.stage in ("guards", "capture")


def _with_a_break(x: Any) -> Any:
    y = (x * 3).sin()
    if y.sum() > 100:  # the function runs in two parts
        return y
    near = -y
    return near.exp()


def test_functions_in_parts_are_compared_part_by_part() -> None:
    f: Any = torch.compile(_with_a_break, options=dict(RAISE))
    for _ in range(3):
        x = torch.randn(4)
        torch.testing.assert_close(f(x), _with_a_break(x))
    assert len(f.entries) > 1
    assert f.given_up is None


@pytest.mark.usefixtures("_wrong_pass")
def test_a_wrong_part_is_found_and_put_right() -> None:
    f: Any = torch.compile(_with_a_break, options={"shadow": 2})
    x = torch.randn(4)
    with pytest.warns(UserWarning, match="to blame:   forgets_minus"):
        got = f(x)
    torch.testing.assert_close(got, _with_a_break(x))
    assert f.given_up is not None
    torch.testing.assert_close(f(x), _with_a_break(x))
    with pytest.raises(ShadowError, match="op:         neg"):
        torch.compile(_with_a_break, options=dict(RAISE))(x)


def test_unknown_actions_are_refused() -> None:
    with pytest.raises(ValueError, match="shadow_action is 'warn' or 'raise', not 'ignore'"):
        torch.compile(_doubles, options={"shadow_action": "ignore"})


# ---- what counts as equal


F32 = dt.float32
NEAR = [
    ("equal", [1.0, 2.0], [1.0, 2.0], True),
    ("last digits", [1.0, 2.0000001], [1.0, 2.0], True),
    ("off", [1.0, 2.1], [1.0, 2.0], False),
    ("nan on both sides", [np.nan, 1.0], [np.nan, 1.0], True),
    ("nan on one side", [np.nan, 1.0], [1.0, 1.0], False),
    ("infinite on both sides", [np.inf, 1.0], [np.inf, 1.0], True),
    ("other infinity", [-np.inf, 1.0], [np.inf, 1.0], False),
    ("small beside large", [1e-7, 100.0], [2e-7, 100.0], True),
    ("small alone", [1e-7, 3e-7], [2e-7, 3e-7], False),
]


@pytest.mark.parametrize(("name", "a", "b", "same"), NEAR, ids=[row[0] for row in NEAR])
def test_near(name: str, a: list[float], b: list[float], same: bool) -> None:
    x, y = (np.array(v, np.float32) for v in (a, b))
    found = NearnessRule(local=True).difference(x, y, F32)
    assert (found is None) == same, name


def test_what_rounding_explains_is_no_difference() -> None:
    x, y = np.array([1.0, 0.5], np.float32), np.array([1.0, 0.0], np.float32)
    rule = NearnessRule(local=True)
    assert rule.difference(x, y, F32, lambda: np.array([0.0, 0.2])) is None
    assert rule.difference(x, y, F32, lambda: np.array([0.0, 0.01])) is not None


def test_numbers_of_few_bits_come_out_the_same_but_for_ties() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(16000, 16300, 1000).astype(np.uint16)
    rule, tie, many = NearnessRule(local=True, exact=True), bits.copy(), bits.copy()
    tie[3] += 1
    many[:100] += 1
    assert rule.rounds_otherwise(tie, bits, dt.bfloat16) is None
    assert rule.rounds_otherwise(many, bits, dt.bfloat16) is not None
    assert NearnessRule(local=True).rounds_otherwise(many, bits, dt.bfloat16) is None


def test_sums_that_cancel_are_no_alarm() -> None:
    def f(x: Any) -> Any:
        return (x * 1e4).sum(1) - (x * 1e4).flip(1).sum(1)

    torch.manual_seed(0)
    compiled: Any = torch.compile(f, options=dict(RAISE))
    compiled(torch.randn(5, 257))
    assert compiled.given_up is None


def test_memory_that_nobody_filled_may_hold_anything() -> None:
    def f(x: Any) -> Any:
        made = torch.empty(4, 3)
        made[1:3] = x
        return made * 2, made[1:3]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            torch.compile(f, options=dict(RAISE))(torch.randn(2, 3))


# ---- the command


def _row(stage: str, file: str, named: str = "mul") -> Row:
    mutant = next(m for m in ALL if m.file == file)
    return Row(mutant, stage, named, "", "", 0.0)


def test_planted_bugs_are_graded_strictly() -> None:
    assert _row("cse", "_src/transforms/cse.py").is_named
    assert not _row("fold", "_src/transforms/cse.py").is_named
    assert not _row("silent", "_src/transforms/cse.py").is_found
    assert not _row("crash", "_src/transforms/cse.py").is_found
    assert _row("kernel", "_src/backends/cpu/fused/unit.py").is_named
    assert not _row("kernel", "_src/backends/cpu/fused/unit.py", "").is_named
    assert refused("raised KeyError in the stage 'memory plan': 0") == "memory plan"
    told = score([_row("cse", "_src/transforms/cse.py"), _row("crash", "_src/transforms/cse.py")])
    assert "of the other 2, 1 found (50 %), 1 with the right stage" in told
    assert set(RIGHT) <= {m.file for m in ALL}
    assert len({m.name for m in ALL}) == len(ALL) >= 90


def test_a_wrong_kernel_of_a_whole_composite_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph has the composite's ops, which are right: it is not the capture that is wrong."""
    real = composite.traced

    def doubling(op: Any, args: Any, target: Any, body: Any) -> Any:
        wrong = op.qualified == "nn.functional.glu"
        return real(op, args, target, (lambda *a: body(*a) * 2) if wrong else body)

    monkeypatch.setattr(composite, "traced", doubling)
    plans.clear_plans()
    try:
        found = _finding(lambda x: torch.nn.functional.glu(x * 2), torch.randn(3, 8))
    finally:
        plans.clear_plans()
    assert (found.stage, found.op) == ("eager kernel", "nn.functional.glu")


def test_composites_that_draw_are_not_compared() -> None:
    x = torch.ones(40)
    with EagerComposites() as watched:
        torch.nn.functional.glu(x)
    assert [call.node.op.qualified for call in watched.calls] == ["nn.functional.glu"]
    assert is_settled(watched.calls[0].node)
    assert not is_settled(Node(op.get("draw"), (), ()))


@pytest.mark.parametrize("mutant", MORE, ids=lambda m: m.name)
def test_planted_rows_fit_the_files(mutant: Any) -> None:
    text = changed(mutant, (ROOT / "lucerne" / mutant.file).read_text())
    compile(text, mutant.file, "exec")


@pytest.mark.nightly
def test_random_programs_are_silent() -> None:
    pytest.importorskip("torch")
    from tests.shadow.fuzz import tallied

    tally = tallied(5000, 40)
    assert not tally.alarms
    assert not tally.crashes
