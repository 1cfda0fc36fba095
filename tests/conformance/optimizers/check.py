"""Run an optimizer on both sides with the same gradients, and compare what a user can see.

In order: the constructor, repr, parameters after each step, the state dict (keys, order, values,
groups); then torch's state is loaded on the other side and theirs into torch, and all go on.
"""

import math
from typing import Any

import torch

from tests.conformance import rebind, tree
from tests.conformance.bridge import Bridge, Memo, torch_bridge
from tests.conformance.compare import Comparison, Policy
from tests.conformance.context import quiet
from tests.conformance.gradients import compare_gradients
from tests.conformance.optimizers.samples import Setup
from tests.conformance.outcome import attempt, both_succeeded
from tests.conformance.rebind import MissingError
from tests.conformance.result import Sample, Tally
from tests.conformance.tolerance import GRADIENTS, VALUES

MORE_STEPS = 2  # after the states were exchanged


def check_setups(tally: Tally, name: str, setups: list[Setup], bridge: Bridge) -> None:
    """Every configuration of one optimizer."""
    for setup in setups:
        with quiet(), tally.sample(setup.label) as record:
            try:
                _check(name, setup, bridge, record)
            except MissingError as error:
                record.expect(False, "missing", str(error))


class Side:
    """An optimizer of one framework with its parameters."""

    def __init__(self, name: str, setup: Setup, bridge: Bridge) -> None:
        self.setup = setup
        self.bridge = bridge
        start = [x.requires_grad_() for x in setup.numbers(0)]
        self.leaves = [bridge.to_other(x, Memo()) for x in start]
        self.grads: list[Any] = []
        # With differentiable=True the parameters are themselves results of something.
        self.params = [p.clone() for p in self.leaves] if setup.differentiable else self.leaves
        make = rebind.lookup(bridge.module.optim, name)
        self.optimizer = make(self._groups(), **bridge.carry(setup.kwargs, Memo()))

    def _groups(self) -> Any:
        if self.setup.groups:
            return [{"params": self.params[:1]}, {"params": self.params[1:], "lr": 0.07}]
        if self.setup.named:
            return [(f"layer.{i}", p) for i, p in enumerate(self.params)]
        return self.params

    def step(self, number: int) -> Any:
        """One step with the gradients of that number."""
        if self.setup.closure:
            return self.optimizer.step(self._loss)
        for p, g in zip(self.params, self.setup.gradients(number), strict=True):
            grad = self.bridge.to_other(g, Memo())
            if self.setup.differentiable:
                self.grads.append(grad.requires_grad_())
                grad = grad.clone()
            p.grad = grad
        return self.optimizer.step()

    def _loss(self) -> Any:
        """A bowl with a flat bottom: many iterations away from convergence, where noise decides."""
        self.optimizer.zero_grad()
        targets = [self.bridge.to_other(g, Memo()) for g in self.setup.gradients(0)]
        gaps = [(p - g).abs() for p, g in zip(self.params, targets, strict=True)]
        total = sum((gap**4 * (i + 1) + gap**2 * 0.1).sum() for i, gap in enumerate(gaps))
        total.backward()  # type: ignore[union-attr]
        return total

    def input_gradients(self) -> Any:
        """Derivatives of the parameters by what they started from and by every gradient."""
        ends = [*self.leaves, *self.grads]
        outs = [p for p in self.params if p.requires_grad]
        ones = [self.bridge.module.ones_like(p) for p in outs]
        return self.bridge.grad(outs, ends, ones, retain_graph=True)


def _check(name: str, setup: Setup, bridge: Bridge, record: Sample) -> None:
    expected = attempt(lambda: Side(name, setup, torch_bridge()))
    got = attempt(lambda: Side(name, setup, bridge))
    if isinstance(got.error, MissingError):
        raise got.error
    if not both_succeeded(record, expected, got):
        return
    theirs, ours = expected.result, got.result
    want, have = repr(theirs.optimizer), repr(ours.optimizer)
    record.expect(want == have, "repr", lambda: f"{want!r} got {have!r}")
    if setup.differentiable:
        _check_differentiable(record, theirs, ours)
        return
    if not _steps(record, theirs, ours, range(setup.steps), "parameters"):
        return
    if _compare_states(record, theirs, ours):
        _exchange(record, name, theirs, ours)


def _steps(record: Sample, theirs: Side, ours: Side, numbers: range, check: str) -> bool:
    """Steps on both sides; the parameters must agree after each."""
    tolerances = GRADIENTS if theirs.setup.closure else VALUES
    comparison = Comparison(record, ours.bridge, Policy(tolerances))
    for number in numbers:
        left, right = (
            attempt(lambda n=number: theirs.step(n)),
            attempt(lambda n=number: ours.step(n)),
        )
        if not both_succeeded(record, left, right):
            return False
        if not comparison.outputs(left.result, right.result):
            return False
        for i, (p, q) in enumerate(zip(theirs.params, ours.params, strict=True)):
            if not comparison.value(f"step {number}, parameter {i}", p, q, check):
                return False
    return True


def _check_differentiable(record: Sample, theirs: Side, ours: Side) -> None:
    """Derivatives through the first step; then through all, where torch itself can."""
    if not _steps(record, theirs, ours, range(1), "parameters"):
        return
    _compare_through(record, theirs, ours, required=True)
    if _steps(record, theirs, ours, range(1, theirs.setup.steps), "parameters"):
        _compare_through(record, theirs, ours, required=False)


def _compare_through(record: Sample, theirs: Side, ours: Side, *, required: bool) -> None:
    expected, got = attempt(theirs.input_gradients), attempt(ours.input_gradients)
    if expected.error is not None and not required:
        return  # torch wrote over what its own backward needs; there is nothing to compare with
    if both_succeeded(record, expected, got):
        comparison = Comparison(record, ours.bridge, Policy(GRADIENTS))
        compare_gradients(comparison, expected.result, got.result)


def _compare_states(record: Sample, theirs: Side, ours: Side) -> bool:
    want, have = theirs.optimizer.state_dict(), ours.optimizer.state_dict()
    left, right = _layout(want), _layout(have)
    if not record.expect(left == right, "state keys", lambda: f"{left} got {right}"):
        return False
    comparison = Comparison(record, ours.bridge, Policy(GRADIENTS))
    good = True
    for (place, x), (_, y) in zip(tree.paths(want), tree.paths(have), strict=True):
        if isinstance(x, torch.Tensor):
            good &= comparison.leaf(place, x, y)
        else:
            same = type(x) is type(y) and _equal(x, y)
            good &= record.expect(same, "state", f"{place}: {x!r} got {y!r}")
    return good


def _equal(x: Any, y: Any) -> bool:
    return math.isclose(x, y, rel_tol=1e-7) if isinstance(x, float) else bool(x == y)


def _layout(state: dict[str, Any]) -> Any:
    """Keys in order; the order of the groups' options is free."""
    groups = [
        {key: tree.outline(group[key]) for key in sorted(group)} for group in state["param_groups"]
    ]
    kept = {
        key: list(values) if isinstance(values, dict) else "*"
        for key, values in state["state"].items()
    }
    return kept, groups


def _exchange(record: Sample, name: str, theirs: Side, ours: Side) -> None:
    """Each side goes on from the other's state."""
    fresh_ours = Side(name, theirs.setup, ours.bridge)
    fresh_theirs = Side(name, theirs.setup, theirs.bridge)
    try:
        state = ours.bridge.carry(theirs.optimizer.state_dict(), Memo())
        fresh_ours.optimizer.load_state_dict(state)
        back = tree.map_leaves(lambda x: _to_torch(x, ours.bridge), ours.optimizer.state_dict())
        fresh_theirs.optimizer.load_state_dict(back)
    except Exception as error:
        record.raised(error, "load_state_dict")
        return
    _copy_params(theirs, fresh_ours)
    _copy_params(theirs, fresh_theirs)
    more = range(theirs.setup.steps, theirs.setup.steps + MORE_STEPS)
    if _steps(record, theirs, fresh_ours, more, "after loading"):
        for number in more:
            fresh_theirs.step(number)
        comparison = Comparison(record, theirs.bridge, Policy(GRADIENTS))
        for i, (p, q) in enumerate(zip(theirs.params, fresh_theirs.params, strict=True)):
            comparison.value(f"parameter {i}", p, q, "after loading back")


def _copy_params(source: Side, target: Side) -> None:
    with target.bridge.module.no_grad():
        for p, q in zip(source.params, target.params, strict=True):
            q.copy_(target.bridge.to_other(p.detach(), Memo()))


def _to_torch(x: Any, bridge: Bridge) -> Any:
    return bridge.from_other(x) if bridge.is_tensor(x) else x
