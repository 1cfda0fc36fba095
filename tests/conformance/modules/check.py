"""Build a module on both sides, use it, and compare all that a user can see.

In order: the constructor, repr, attributes, the names, order and initial values of the state
(drawn from the same seed), `load_state_dict` of torch's state, outputs, gradients of the inputs and
of each parameter, what happened to the inputs, and the state afterwards.
"""

import copy
import functools
import pickle
from collections.abc import Callable
from typing import Any

import torch

from tests.conformance import tree
from tests.conformance.bridge import Bridge, Memo, torch_bridge
from tests.conformance.compare import WIDER, Comparison, Policy, significant_strides
from tests.conformance.context import number_of, quiet
from tests.conformance.gradients import compare_gradients, draw_like
from tests.conformance.modules.samples import Case
from tests.conformance.outcome import Outcome, attempt, both_succeeded
from tests.conformance.rebind import MissingError
from tests.conformance.result import Sample, Tally
from tests.conformance.tolerance import GRADIENTS, is_inexact

PLAIN = (bool, int, float, str, tuple, type(None))  # attributes that can be compared by value
COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda module: pickle.loads(pickle.dumps(module)),
}


def check_cases(tally: Tally, cases: list[Case], bridge: Bridge) -> None:
    """Every case of one class."""
    for case in cases:
        with quiet(), tally.sample(case.label) as record:
            try:
                _Check(case, bridge, record).run()
            except MissingError as error:
                record.expect(False, "missing", str(error))


class _Check:
    """One case on both sides."""

    def __init__(self, case: Case, bridge: Bridge, record: Sample) -> None:
        self.case = case
        self.bridge = bridge
        self.record = record
        self.seed = number_of(case.label)

    def run(self) -> None:
        expected = attempt(lambda: self._built(torch_bridge()))
        got = attempt(lambda: self._built(self.bridge))
        if isinstance(got.error, MissingError):
            raise got.error
        if not both_succeeded(self.record, expected, got):
            _compare_texts(self.record, expected, got)
            return
        self.record.expect(True, "constructs", "")
        theirs, ours = expected.result, got.result
        self._compare_looks(theirs, ours)
        if self.seed == 0 and self.case.training:
            self._compare_copies(theirs, ours)
        if self.case.lazy and not self._first_use(theirs, ours):
            return
        if not self._compare_initial(theirs, ours):
            return
        before = {key: copy.deepcopy(x) for key, x in theirs.state_dict().items()}
        if self._load(ours, before) and self.case.use is not None:
            self._use(theirs, ours, before)

    # Before the first call

    def _built(self, bridge: Bridge) -> Any:
        bridge.seed(self.seed)
        module = self.case.make(bridge)
        if not self.case.lazy:
            module = module.to(bridge.convert(self.case.dtype))
        return module.train(self.case.training)

    def _compare_looks(self, theirs: Any, ours: Any) -> None:
        expect = self.record.expect
        want, have = repr(theirs), repr(ours)
        expect(want == have, "repr", lambda: f"{want[:300]!r} got {have[:300]!r}")
        tree_of = [(name, type(m).__name__) for name, m in theirs.named_modules()]
        found = [(name, type(m).__name__) for name, m in ours.named_modules()]
        expect(tree_of == found, "submodules", lambda: f"{tree_of} got {found}")
        wrong = [
            f"{name}={value!r} got {getattr(ours, name, 'nothing')!r}"
            for name, value in vars(theirs).items()
            if _is_public(name, value) and getattr(ours, name, "nothing") != value
        ]
        expect(not wrong, "attributes", ", ".join(wrong))

    def _compare_copies(self, theirs: Any, ours: Any) -> None:
        """`deepcopy`, and a pickle where torch's module has one, bring back the same module."""
        for title, again in COPIES.items():
            expected, got = attempt(lambda f=again: f(theirs)), attempt(lambda f=again: f(ours))
            if expected.error is not None:
                continue
            if got.error is not None:
                self.record.raised(got.error, title)
                continue
            same = repr(got.result) == repr(ours) and got.result is not ours
            same &= list(got.result.state_dict()) == list(ours.state_dict())
            self.record.expect(same, title, "the copy is another module")
            if not self.case.lazy:
                exact = Comparison(self.record, self.bridge, Policy(exact=True))
                self._compare_state(exact, theirs, got.result, title)

    def _first_use(self, theirs: Any, ours: Any) -> bool:
        """Lazy modules get their parameters by a first call; in evaluation nothing else changes."""
        theirs.eval(), ours.eval()
        keys, found = list(theirs.state_dict()), list(ours.state_dict())
        self.record.expect(keys == found, "state keys", lambda: f"lazy {keys} got {found}")
        with torch.no_grad():
            torch.manual_seed(self.seed)
            expected = attempt(lambda: theirs(*self.case.args, **self.case.kwargs))
        args = self.bridge.carry(self.case.args, Memo())
        kwargs = self.bridge.carry(self.case.kwargs, Memo())
        with self.bridge.module.no_grad():
            self.bridge.seed(self.seed)
            got = attempt(lambda: ours(*args, **kwargs))
        theirs.train(self.case.training), ours.train(self.case.training)
        if not both_succeeded(self.record, expected, got):
            return False
        want, have = repr(theirs), repr(ours)
        return self.record.expect(want == have, "repr", lambda: f"{want!r} got {have!r}")

    def _compare_initial(self, theirs: Any, ours: Any) -> bool:
        keys, found = list(theirs.state_dict()), list(ours.state_dict())
        if not self.record.expect(keys == found, "state keys", lambda: f"{keys} got {found}"):
            return False
        names = [name for name, _ in theirs.named_parameters()]
        have = [name for name, _ in ours.named_parameters()]
        if not self.record.expect(names == have, "parameters", lambda: f"{names} got {have}"):
            return False
        flags = [p.requires_grad for p in theirs.parameters()]
        got = [p.requires_grad for p in ours.parameters()]
        self.record.expect(flags == got, "parameters", lambda: f"requires_grad {flags} got {got}")
        exact = Comparison(self.record, self.bridge, Policy(exact=True))
        return self._compare_state(exact, theirs, ours, "initial")

    def _compare_state(self, comparison: Comparison, theirs: Any, ours: Any, check: str) -> bool:
        found = ours.state_dict()
        good = True
        for key, want in theirs.state_dict().items():
            have = found[key]
            if not isinstance(want, torch.Tensor):  # what get_extra_state returned
                good &= self.record.expect(want == have, check, f"{key}: {want} got {have}")
                continue
            left = (tuple(want.shape), str(want.dtype))
            right = (tuple(have.shape), str(have.dtype))
            same = self.record.expect(left == right, check, f"{key}: {left} got {right}")
            good &= same and comparison.value(key, want, have, check)
        return good

    def _load(self, ours: Any, state: dict[str, Any]) -> bool:
        try:
            report = ours.load_state_dict(self.bridge.carry(state, Memo()))
        except Exception as error:
            self.record.raised(error, "load_state_dict")
            return False
        text = str(report)
        return self.record.expect(
            text == "<All keys matched successfully>", "load_state_dict", text
        )

    # The call

    def _use(self, theirs: Any, ours: Any, before: dict[str, Any]) -> None:
        case, bridge, memo = self.case, self.bridge, Memo()
        args, kwargs = bridge.carry(case.args, memo), bridge.carry(case.kwargs, memo)
        wide = _Wide(case, before, self.seed)
        use = case.use
        assert use is not None
        torch.manual_seed(self.seed)
        expected = attempt(lambda: use(torch, theirs, *case.args, **case.kwargs))
        bridge.seed(self.seed)
        got = attempt(lambda: use(bridge.module, ours, *args, **kwargs))
        if not both_succeeded(self.record, expected, got):
            return
        comparison = Comparison(self.record, bridge, Policy(truth=lambda: wide.outputs))
        if comparison.outputs(expected.result, got.result):
            self._compare_strides(expected.result, got.result)
            self._compare_gradients(theirs, ours, expected.result, got.result, memo, wide)
        plain = Comparison(self.record, bridge, Policy())
        for left, right in memo.tensors.values():
            plain.value("argument", left, right, check="inputs")
        self._compare_state(plain, theirs, ours, "state after")

    def _compare_strides(self, expected: Any, got: Any) -> None:
        """The memory order of the outputs."""
        for want, have in zip(tree.leaves(expected), tree.leaves(got), strict=True):
            if isinstance(want, torch.Tensor) and want.numel() and want.layout == torch.strided:
                same = significant_strides(want) == significant_strides(have)
                message = f"{tuple(want.shape)}: {want.stride()} got {tuple(have.stride())}"
                self.record.expect(same, "stride", message)

    def _compare_gradients(
        self, theirs: Any, ours: Any, expected: Any, got: Any, memo: Memo, wide: "_Wide"
    ) -> None:
        outs = _differentiable(tree.leaves(expected))
        have = [x for x in tree.leaves(got) if self.bridge.is_tensor(x) and x.requires_grad]
        counts = f"{len(outs)} differentiable outputs, got {len(have)}"
        if not self.record.expect(len(outs) == len(have), "requires_grad", counts) or not outs:
            return
        inputs = _differentiable([left for left, _ in memo.tensors.values() if left.is_leaf])
        named = {name: p for name, p in theirs.named_parameters() if p.requires_grad}
        ends = [*inputs, *named.values()]
        found = dict(ours.named_parameters())
        our_ends = [*(memo.other(x) for x in inputs), *(found[name] for name in named)]
        if not ends:
            return
        cotangents = draw_like(outs, self.seed)
        want = torch.autograd.grad(outs, ends, cotangents, allow_unused=True)
        try:
            carried = [self.bridge.to_other(c, Memo()) for c in cotangents]
            back = self.bridge.grad(have, our_ends, carried)
        except Exception as error:
            self.record.raised(error, "backward")
            return
        policy = Policy(GRADIENTS, truth=lambda: wide.gradients)
        compare_gradients(Comparison(self.record, self.bridge, policy), want, back)


class _Wide:
    """The same case in float64, run by torch only if a value needs a referee."""

    def __init__(self, case: Case, state: dict[str, Any], seed: int) -> None:
        self.case = case
        self.state = state
        self.seed = seed
        self.inputs = [_widened(x) for x in case.args]
        self.named = {name: _widened(x) for name, x in case.kwargs.items()}

    @functools.cached_property
    def outputs(self) -> Any:
        module = self._module()
        assert self.case.use is not None
        torch.manual_seed(self.seed)
        return self.case.use(torch, module, *self.inputs, **self.named)

    @functools.cached_property
    def gradients(self) -> Any:
        module = self._module()
        assert self.case.use is not None
        torch.manual_seed(self.seed)
        result = self.case.use(torch, module, *self.inputs, **self.named)
        outs = _differentiable(tree.leaves(result))
        inputs = _differentiable(tree.leaves([self.inputs, self.named]))
        distinct = list({id(x): x for x in inputs}.values())
        ends = [*distinct, *(p for p in module.parameters() if p.requires_grad)]
        cotangents = draw_like(outs, self.seed)
        return list(torch.autograd.grad(outs, ends, cotangents, allow_unused=True))

    def _module(self) -> Any:
        module = self.case.make(torch_bridge()).train(self.case.training)
        if self.case.lazy:
            module(*self.case.args, **self.case.kwargs)
        module.load_state_dict(self.state)
        return module.double()


def _compare_texts(record: Sample, expected: Outcome, got: Outcome) -> None:
    """A constructor that refuses its arguments says what torch says."""
    if expected.error is not None and got.error is not None:
        want, have = str(expected.error), str(got.error)
        record.expect(want == have, "error text", f"{want!r} got {have!r}")


def _differentiable(found: list[Any]) -> list[torch.Tensor]:
    return [x for x in found if isinstance(x, torch.Tensor) and x.requires_grad]


def _widened(x: Any) -> Any:
    """A nest of arguments in float64; the same tensor stays the same tensor."""
    if tree.is_container(x):
        return tree.map_leaves(_widened, x)
    if not isinstance(x, torch.Tensor) or not is_inexact(x.dtype):
        return x
    wide = x.detach().to(WIDER.get(x.dtype, x.dtype), copy=True)
    return wide.requires_grad_(x.requires_grad)


def _is_public(name: str, value: Any) -> bool:
    if name.startswith("_") or name == "training":
        return False
    return isinstance(value, PLAIN) and not any(
        isinstance(part, (torch.Tensor, torch.Size)) for part in tree.leaves(value)
    )
