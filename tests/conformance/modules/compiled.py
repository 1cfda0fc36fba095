"""M9c, M9b: a compiled module does what the module does.

Both sides are Lucerne: a module, and `compile` of a deep copy of it. They are called twice from the
same seed (the second call runs what the first one compiled), in training and in evaluation.
Compared are outputs and their strides, gradients of the inputs and of each parameter (first by
`autograd.grad`, then by `backward`), what happened to the inputs, and the state
afterwards. M9c uses the tolerances of all other checks (and random numbers as eager draws them);
M9b is `mode="bitwise"`, bit for bit: gradients arrive in the layout of the outputs, because the
order in which a sum over them is taken follows their strides.
"""

import copy
from dataclasses import dataclass
from typing import Any

from tests.conformance import tree
from tests.conformance.bridge import Bridge, Memo
from tests.conformance.compare import Comparison, Policy, significant_strides
from tests.conformance.context import number_of, quiet
from tests.conformance.gradients import draw_like
from tests.conformance.modules.samples import Case
from tests.conformance.outcome import attempt
from tests.conformance.result import Sample, Tally
from tests.conformance.tolerance import GRADIENTS

CALLS = 2


def check_compiled(tally: Tally, cases: list[Case], bridge: Bridge, mode: str | None) -> None:
    """Every case of one class."""
    for case in cases:
        with quiet(), tally.sample(case.label) as record:
            _Check(case, bridge, record, mode).run()


@dataclass
class _Side:
    """A module with the tensors it is called with."""

    module: Any
    call: Any
    args: list[Any]
    kwargs: dict[str, Any]

    def ends(self, bridge: Bridge) -> list[Any]:
        """Leaves whose gradients count: inputs, then parameters."""
        given = [x for x in tree.leaves([self.args, self.kwargs]) if bridge.is_tensor(x)]
        distinct = {id(x): x for x in [*given, *self.module.parameters()]}
        return [x for x in distinct.values() if x.requires_grad and x.is_leaf]


class _Check:
    def __init__(self, case: Case, bridge: Bridge, record: Sample, mode: str | None) -> None:
        self.case, self.bridge, self.record, self.mode = case, bridge, record, mode
        self.seed = number_of(case.label)
        self.exact = mode == "bitwise"

    def run(self) -> None:
        bridge = self.bridge
        built = attempt(self._built)
        if built.error is not None:  # what torch refuses as well: M9 judges that
            self.record.drop()
            return
        module = built.result
        plain = self._side(module, module)
        other = copy.deepcopy(module)
        compiled = bridge.module.compile(
            other, fullgraph=True, mode=self.mode, options={"disable": ["count_draws"]}
        )
        ours = self._side(other, compiled)
        for call in range(CALLS):
            if not self._call(plain, ours, call):
                return
        entries = len(compiled.forward.entries)
        self.record.expect(entries == 1, "one version", f"compiled {entries} times")

    def _built(self) -> Any:
        case, bridge = self.case, self.bridge
        bridge.seed(self.seed)
        module = case.make(bridge)
        if case.lazy:  # its parameters come by a first call
            module.eval()
            with bridge.module.no_grad():
                module(*bridge.carry(case.args, Memo()), **bridge.carry(case.kwargs, Memo()))
        else:
            module = module.to(bridge.convert(case.dtype))
        return module.train(case.training)

    def _side(self, module: Any, call: Any) -> _Side:
        memo = Memo()
        args = self.bridge.carry(self.case.args, memo)
        return _Side(module, call, args, self.bridge.carry(self.case.kwargs, memo))

    # One call of both

    def _call(self, plain: _Side, ours: _Side, number: int) -> bool:
        wanted, got = self._run(plain, number), self._run(ours, number)
        if got.error is not None or wanted.error is not None:
            self._compare_errors(wanted.error, got.error)
            return False
        expected, gradients = wanted.result
        found, our_gradients = got.result
        comparison = Comparison(self.record, self.bridge, Policy(exact=self.exact))
        good = comparison.outputs(self._torch(expected), found)
        good = good and self._compare_flags(expected, found)
        careful = Policy(GRADIENTS, exact=self.exact)
        self._compare_all(careful, gradients, our_gradients, "gradient")
        given = [tree.leaves([side.args, side.kwargs]) for side in (plain, ours)]
        self._compare_all(Policy(exact=self.exact), *given, "inputs")
        states = [list(side.module.state_dict().values()) for side in (plain, ours)]
        self._compare_all(Policy(exact=self.exact), *states, "state after")
        return good

    def _run(self, side: _Side, number: int) -> Any:
        use = self.case.use
        assert use is not None

        def run() -> Any:
            self.bridge.seed(self.seed + number)
            result = use(self.bridge.module, side.call, *side.args, **side.kwargs)
            return result, self._gradients(side, result, number)

        return attempt(run)

    def _gradients(self, side: _Side, result: Any, number: int) -> list[Any]:
        bridge = self.bridge
        outs = [x for x in tree.leaves(result) if bridge.is_tensor(x) and x.requires_grad]
        ends = side.ends(bridge)
        if not outs or not ends:
            return []
        drawn = draw_like([bridge.from_other(x) for x in outs], self.seed)
        empty_like = bridge.module.empty_like
        cotangents = [
            empty_like(out.detach()).copy_(bridge.to_other(c, Memo()))
            for out, c in zip(outs, drawn, strict=True)
        ]
        if number == 0:
            return list(bridge.grad(outs, ends, cotangents))
        bridge.module.autograd.backward(outs, cotangents)
        return [x.grad for x in ends]

    # Comparing

    def _torch(self, x: Any) -> Any:
        """Results of ours as torch's tensors."""
        is_tensor, from_other = self.bridge.is_tensor, self.bridge.from_other
        return tree.map_leaves(lambda v: from_other(v) if is_tensor(v) else v, x)

    def _compare_errors(self, want: Any, have: Any) -> None:
        """What the module refuses, the compiled module refuses with the same words."""
        if have is not None and want is None:
            self.record.raised(have, "compiled")
            return
        same = type(want) is type(have) and str(want) == str(have)
        self.record.expect(same, "error", f"{want!r} got {have!r}")

    def _compare_flags(self, expected: Any, found: Any) -> bool:
        for want, have in zip(tree.leaves(expected), tree.leaves(found), strict=True):
            if not self.bridge.is_tensor(want):
                continue
            flags = want.requires_grad, have.requires_grad
            if not self.record.expect(flags[0] == flags[1], "requires_grad", f"{flags}"):
                return False
            strides = significant_strides(want), significant_strides(have)
            text = f"{tuple(want.shape)}: {strides[0]} got {strides[1]}"
            self.record.expect(strides[0] == strides[1], "stride", text)
        return True

    def _compare_all(self, policy: Policy, wanted: Any, found: Any, check: str) -> None:
        """Lists of tensors and other things, in pairs."""
        comparison = Comparison(self.record, self.bridge, policy)
        for k, (want, have) in enumerate(zip(wanted, found, strict=True)):
            both = self.bridge.is_tensor(want), self.bridge.is_tensor(have)
            if not self.record.expect(both[0] == both[1], check, f"[{k}] {want} got {have}"):
                continue
            if both[0]:
                comparison.value(k, self._torch(want), have, check)
