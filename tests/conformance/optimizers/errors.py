"""What torch's optimizers refuse or warn of: `M10e` asks for the type, `M10t` for the text."""

import re
import warnings
from typing import Any

from tests.conformance import rebind
from tests.conformance.bridge import Bridge, Memo, torch_bridge
from tests.conformance.optimizers.samples import error_cases
from tests.conformance.outcome import same_error
from tests.conformance.result import Sample, Tally, describe


def check_errors(types: Tally, texts: Tally, name: str, bridge: Bridge) -> None:
    """Every error input of one optimizer that torch itself refuses."""
    for label, case in error_cases(name):
        with types.sample(label) as kind, texts.sample(label) as text:
            _check(name, case, bridge, kind, text)


def _check(name: str, case: Any, bridge: Bridge, kind: Sample, text: Sample) -> None:
    expected = _refusal(name, case, torch_bridge())
    if expected is None:
        kind.drop()
        text.drop()
        return
    got = _refusal(name, case, bridge)
    if got is None:
        for record in (kind, text):
            record.expect(False, "raised", f"no error; torch: {describe(expected)}")
        return
    message = f"{describe(expected)} got {describe(got)}"
    kind.expect(same_error(expected, got), "error type", message)
    said = re.search(case.error_regex, str(got)) is not None
    text.expect(said, "error text", f"/{case.error_regex[:120]}/ got {describe(got)}")


def _refusal(name: str, case: Any, bridge: Bridge) -> BaseException | None:
    """The error, or the warning, that building the optimizer (and one step) ends in."""
    with warnings.catch_warnings():
        expects_warning = issubclass(case.error_type, Warning)
        warnings.simplefilter("error" if expects_warning else "ignore")
        try:
            _run(name, case, bridge)
        except Exception as error:
            return error
    return None


def _run(name: str, case: Any, bridge: Bridge) -> None:
    inputs, memo = case.optimizer_error_input, Memo()
    params = bridge.carry(inputs.params, memo)
    if params is None:  # any will do
        params = [bridge.module.ones(2, 2).requires_grad_()]
    optimizer = rebind.lookup(bridge.module.optim, name)(
        params, **bridge.carry(inputs.kwargs, memo)
    )
    if "STEP" not in str(case.error_on):
        return
    for p in params:
        p.grad = bridge.module.ones_like(p)
    optimizer.step()
