"""The schedulers of torch.optim.lr_scheduler against torch's: one row for each way to set one up.

30 steps each: rates and momenta of every group after each step, the state dict, a round trip of
the state through the other framework in the middle, jumps to an epoch (the closed form), and a
second scheduler on the same optimizer (chaining).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.conformance import rebind, tree
from tests.conformance.bridge import Bridge, torch_bridge
from tests.conformance.context import quiet
from tests.conformance.outcome import attempt, both_succeeded
from tests.conformance.result import Sample, Tally

STEPS = 30
CLASSES = 16
JUMPS = (3, 1, 17, 8, 29)

Make = Callable[[Any, Any], Any]  # the namespace of schedulers, an optimizer -> a scheduler


@dataclass(frozen=True)
class Row:
    """One way to set up a scheduler."""

    make: Make
    metrics: bool = False  # step() takes a loss
    steps: int = STEPS
    optimizer: str = "SGD"


def _half(s: Any, o: Any, **kwargs: Any) -> Any:
    """A scheduler of the user's own."""

    class Half(s.LRScheduler):  # type: ignore[misc]
        def get_lr(self) -> list[float]:
            return [base * 0.5**self.last_epoch for base in self.base_lrs]

    return Half(o, **kwargs)


def _warmup_then_decay(s: Any, o: Any) -> Any:
    parts = [s.LinearLR(o, 0.1, total_iters=4), s.ExponentialLR(o, 0.9)]
    return s.SequentialLR(o, parts, milestones=[4])


def _three_parts(s: Any, o: Any) -> Any:
    parts = [s.ConstantLR(o, 0.5, 3), s.CosineAnnealingLR(o, 10), s.StepLR(o, 2, 0.7)]
    return s.SequentialLR(o, parts, milestones=[3, 13])


def _nested(s: Any, o: Any) -> Any:
    inner = s.SequentialLR(o, [s.ConstantLR(o, 0.5, 2), s.ExponentialLR(o, 0.8)], milestones=[5])
    return s.ChainedScheduler([inner, s.StepLR(o, 7, 0.5)])


ROWS: dict[str, list[Row]] = {
    "LRScheduler": [Row(_half)],
    "LambdaLR": [
        Row(lambda s, o: s.LambdaLR(o, lambda epoch: 0.95**epoch)),
        Row(lambda s, o: s.LambdaLR(o, [lambda epoch: epoch // 3, lambda epoch: 1.1**epoch])),
    ],
    "MultiplicativeLR": [
        Row(lambda s, o: s.MultiplicativeLR(o, lambda epoch: 0.95)),
        Row(lambda s, o: s.MultiplicativeLR(o, [lambda e: 0.9, lambda e: 1 - 1 / (e + 2)])),
    ],
    "StepLR": [
        Row(lambda s, o: s.StepLR(o, 3)),
        Row(lambda s, o: s.StepLR(o, step_size=7, gamma=0.5)),
    ],
    "MultiStepLR": [
        Row(lambda s, o: s.MultiStepLR(o, [2, 5, 9])),
        Row(lambda s, o: s.MultiStepLR(o, milestones=[4, 4, 20], gamma=0.3)),
    ],
    "ConstantLR": [
        Row(lambda s, o: s.ConstantLR(o)),
        Row(lambda s, o: s.ConstantLR(o, factor=0.5, total_iters=12)),
    ],
    "LinearLR": [
        Row(lambda s, o: s.LinearLR(o)),
        Row(lambda s, o: s.LinearLR(o, start_factor=0.5, end_factor=0.1, total_iters=20)),
    ],
    "ExponentialLR": [Row(lambda s, o: s.ExponentialLR(o, 0.9))],
    "PolynomialLR": [
        Row(lambda s, o: s.PolynomialLR(o)),
        Row(lambda s, o: s.PolynomialLR(o, total_iters=25, power=2.5)),
    ],
    "CosineAnnealingLR": [
        Row(lambda s, o: s.CosineAnnealingLR(o, T_max=10)),
        Row(lambda s, o: s.CosineAnnealingLR(o, 7, eta_min=1e-3)),
    ],
    "CosineAnnealingWarmRestarts": [
        Row(lambda s, o: s.CosineAnnealingWarmRestarts(o, 5)),
        Row(lambda s, o: s.CosineAnnealingWarmRestarts(o, T_0=4, T_mult=2, eta_min=1e-4)),
    ],
    "CyclicLR": [
        Row(lambda s, o: s.CyclicLR(o, 0.01, 0.1, step_size_up=4)),
        Row(lambda s, o: s.CyclicLR(o, 0.01, 0.1, 5, 3, mode="triangular2")),
        Row(lambda s, o: s.CyclicLR(o, [0.01, 0.02], [0.1, 0.3], 5, mode="exp_range", gamma=0.9)),
        Row(
            lambda s, o: s.CyclicLR(o, 0.01, 0.1, 4, scale_fn=lambda x: 1 / (1 + x)),
        ),
        Row(lambda s, o: s.CyclicLR(o, 0.01, 0.1, 4, cycle_momentum=False)),
        Row(lambda s, o: s.CyclicLR(o, 0.01, 0.1, 4), optimizer="Adam"),
    ],
    "OneCycleLR": [
        Row(lambda s, o: s.OneCycleLR(o, 0.3, total_steps=STEPS)),
        Row(lambda s, o: s.OneCycleLR(o, [0.3, 0.1], epochs=6, steps_per_epoch=5)),
        Row(lambda s, o: s.OneCycleLR(o, 0.3, 40, three_phase=True, anneal_strategy="linear")),
        Row(
            lambda s, o: s.OneCycleLR(o, 0.3, 40, pct_start=0.5, div_factor=5.0, final_div_factor=9)
        ),
        Row(lambda s, o: s.OneCycleLR(o, 0.3, 40, cycle_momentum=False)),
        Row(lambda s, o: s.OneCycleLR(o, 0.3, 40), optimizer="AdamW"),
    ],
    "ReduceLROnPlateau": [
        Row(lambda s, o: s.ReduceLROnPlateau(o, patience=2), metrics=True),
        Row(
            lambda s, o: s.ReduceLROnPlateau(
                o, "max", 0.5, 1, threshold_mode="abs", cooldown=2, min_lr=[1e-3, 1e-2]
            ),
            metrics=True,
        ),
    ],
    "SequentialLR": [Row(_warmup_then_decay), Row(_three_parts)],
    "ChainedScheduler": [
        Row(lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 5), s.ExponentialLR(o, 0.9)])),
        Row(_nested),
    ],
}

# What is refused: (class, how it is made or used). Types and texts must be torch's.
REFUSALS: dict[str, list[Make]] = {
    "LRScheduler": [lambda s, o: _half(s, o, last_epoch=3), lambda s, o: s.LRScheduler(object())],
    "LambdaLR": [lambda s, o: s.LambdaLR(o, [lambda e: 1.0])],
    "MultiplicativeLR": [lambda s, o: s.MultiplicativeLR(o, [lambda e: 1.0] * 3)],
    "ConstantLR": [lambda s, o: s.ConstantLR(o, factor=1.5)],
    "LinearLR": [
        lambda s, o: s.LinearLR(o, start_factor=0),
        lambda s, o: s.LinearLR(o, end_factor=2.0),
    ],
    "CosineAnnealingWarmRestarts": [
        lambda s, o: s.CosineAnnealingWarmRestarts(o, 0),
        lambda s, o: s.CosineAnnealingWarmRestarts(o, 2, T_mult=0),
        lambda s, o: s.CosineAnnealingWarmRestarts(o, 2).step(-1),
    ],
    "CyclicLR": [
        lambda s, o: s.CyclicLR(o, 0.1, 1.0, mode="square"),
        lambda s, o: s.CyclicLR(o, [0.1], 1.0),
    ],
    "OneCycleLR": [
        lambda s, o: s.OneCycleLR(o, 0.1),
        lambda s, o: s.OneCycleLR(o, 0.1, total_steps=0),
        lambda s, o: s.OneCycleLR(o, 0.1, 10, pct_start=2.0),
        lambda s, o: s.OneCycleLR(o, 0.1, 10, anneal_strategy="no"),
        lambda s, o: [x.step() for x in [s.OneCycleLR(o, 0.1, 3)] for _ in range(5)],
    ],
    "ReduceLROnPlateau": [
        lambda s, o: s.ReduceLROnPlateau(o, factor=1.0),
        lambda s, o: s.ReduceLROnPlateau(o, mode="least"),
        lambda s, o: s.ReduceLROnPlateau(o, threshold_mode="odd"),
        lambda s, o: s.ReduceLROnPlateau(o, min_lr=[0.1]),
    ],
    "SequentialLR": [
        lambda s, o: s.SequentialLR(o, [], milestones=[]),
        lambda s, o: s.SequentialLR(o, [s.StepLR(o, 2)], milestones=[3]),
        lambda s, o: s.SequentialLR(o, [s.StepLR(o, 2), s.ReduceLROnPlateau(o)], milestones=[3]),
    ],
    "ChainedScheduler": [lambda s, o: s.ChainedScheduler([])],
}


class Side:
    """A scheduler of one framework, with an optimizer of two groups."""

    def __init__(self, row: Row, bridge: Bridge) -> None:
        t = bridge.module
        params = [t.ones(2).requires_grad_() for _ in range(2)]
        for p in params:
            p.grad = t.ones(2)
        groups = [{"params": params[:1]}, {"params": params[1:], "lr": 0.03}]
        momentum = {"momentum": 0.9} if row.optimizer == "SGD" else {}
        make = rebind.lookup(t.optim, row.optimizer)
        self.row = row
        self.names = t.optim.lr_scheduler
        self.optimizer = make(groups, lr=0.2, **momentum)
        self.scheduler = row.make(self.names, self.optimizer)

    def step(self, number: int) -> None:
        self.optimizer.step()
        if self.row.metrics:
            self.scheduler.step(_loss(number))
        else:
            self.scheduler.step()

    def seen(self) -> list[Any]:
        """What the groups hold now."""
        keys = ("lr", "initial_lr", "momentum", "betas", "max_lr", "min_lr", "base_momentum")
        found = [{k: group[k] for k in keys if k in group} for group in self.optimizer.param_groups]
        return [found, self.scheduler.get_last_lr()]


def check_class(tally: Tally, name: str, bridge: Bridge) -> None:
    """All rows and refusals of one scheduler."""
    for i, row in enumerate(ROWS[name]):
        for title, check in CHECKS.items():
            with quiet(), tally.sample(f"{title}#{i}") as record:
                expected = attempt(lambda r=row, c=check: c(r, torch_bridge(), torch_bridge()))
                got = attempt(lambda r=row, c=check: c(r, bridge, torch_bridge()))
                if both_succeeded(record, expected, got):
                    _compare(record, title, expected.result, got.result)
    for i, make in enumerate(REFUSALS.get(name, [])):
        with quiet(), tally.sample(f"refusal#{i}") as record:
            _check_refusal(record, make, bridge)


def _run(row: Row, bridge: Bridge, _: Bridge) -> Any:
    """Rates after each step."""
    side = Side(row, bridge)
    found = [side.seen()]
    for number in range(row.steps - 1):
        side.step(number)
        found.append(side.seen())
    return found


def _state(row: Row, bridge: Bridge, _: Bridge) -> Any:
    """The state dict after some steps, with sorted keys."""
    side = Side(row, bridge)
    for number in range(5):
        side.step(number)
    return _sorted(side.scheduler.state_dict())


def _exchange(row: Row, bridge: Bridge, other: Bridge) -> Any:
    """Half the steps by torch, its states carried over, the rest by the framework under test."""
    first = Side(row, other)
    half = row.steps // 2
    for number in range(half):
        first.step(number)
    second = Side(row, bridge)
    second.scheduler.load_state_dict(first.scheduler.state_dict())
    groups = zip(second.optimizer.param_groups, first.optimizer.param_groups, strict=True)
    for group, known in groups:
        group.update({key: value for key, value in known.items() if key != "params"})
    found = [second.seen()]
    for number in range(half, row.steps - 1):
        second.step(number)
        found.append(second.seen())
    return found


def _jumps(row: Row, bridge: Bridge, _: Bridge) -> Any:
    """`step(epoch)`: the closed form, where a scheduler has one."""
    side = Side(row, bridge)
    found = []
    for epoch in JUMPS:
        if row.metrics:
            side.scheduler.step(_loss(epoch), epoch)
        else:
            side.scheduler.step(epoch)
        found.append(side.seen())
    return found


def _chained(row: Row, bridge: Bridge, _: Bridge) -> Any:
    """A second scheduler that multiplies the same rates."""
    side = Side(row, bridge)
    second = side.names.StepLR(side.optimizer, 4, 0.5)
    found = []
    for number in range(12):
        side.step(number)
        second.step()
        found.append(side.seen())
    return found


CHECKS: dict[str, Callable[[Row, Bridge, Bridge], Any]] = {
    "rates": _run,
    "state dict": _state,
    "exchanged state": _exchange,
    "closed form": _jumps,
    "chained": _chained,
}


def _compare(record: Sample, check: str, expected: Any, got: Any) -> None:
    want, have = tree.outline(expected), tree.outline(got)
    if not record.expect(want == have, check, lambda: f"{want} got {have}"):
        return
    for (place, x), (_, y) in zip(tree.paths(expected), tree.paths(got), strict=True):
        if not record.expect(_same(x, y), check, f"{place}: {x!r} got {y!r}"):
            return


def _same(x: Any, y: Any) -> bool:
    if isinstance(x, float) and isinstance(y, float):
        return math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-12) or (x != x and y != y)
    return type(x) is type(y) and bool(x == y)


def _check_refusal(record: Sample, make: Make, bridge: Bridge) -> None:
    row = Row(make)
    expected = attempt(lambda: Side(row, torch_bridge()))
    got = attempt(lambda: Side(row, bridge))
    assert expected.error is not None, "torch accepts this"
    if both_succeeded(record, expected, got) or got.error is None:
        return
    want, have = str(expected.error), str(got.error)
    record.expect(want == have, "error text", f"{want!r} got {have!r}")


def _sorted(x: Any) -> Any:
    """Dicts by key: the order in which a scheduler set its attributes means nothing."""
    if isinstance(x, dict):
        return {key: _sorted(x[key]) for key in sorted(x)}
    return [_sorted(item) for item in x] if isinstance(x, list) else x


def _loss(number: int) -> float:
    """A loss that falls, then stays, then rises."""
    return max(3.0 - 0.5 * number, 1.0) + 0.05 * max(number - 20, 0)
