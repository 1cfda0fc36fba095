"""What torch's modules refuse: `M9e` asks for the type of the error, `M9t` for its text."""

import re

from tests.conformance.bridge import Bridge, Memo, torch_bridge
from tests.conformance.context import quiet
from tests.conformance.modules.samples import ErrorCase, error_cases
from tests.conformance.outcome import attempt, same_error
from tests.conformance.result import Sample, Tally, describe


def check_errors(types: Tally, texts: Tally, name: str, bridge: Bridge) -> None:
    """Every error input of one class that torch itself refuses."""
    for case in error_cases(name):
        with quiet(), types.sample(case.label) as kind, texts.sample(case.label) as text:
            _check(case, bridge, kind, text)


def _check(case: ErrorCase, bridge: Bridge, kind: Sample, text: Sample) -> None:
    expected = attempt(lambda: _run(case, torch_bridge())).error
    if expected is None:
        kind.drop()
        text.drop()
        return
    got = attempt(lambda: _run(case, bridge)).error
    if got is None:
        for record in (kind, text):
            record.expect(False, "raised", f"no error; torch: {describe(expected)}")
        return
    kind.expect(
        same_error(expected, got), "error type", f"{describe(expected)} got {describe(got)}"
    )
    said = re.search(case.pattern, str(got)) is not None
    text.expect(said, "error text", f"/{case.pattern[:120]}/ got {describe(got)}")


def _run(case: ErrorCase, bridge: Bridge) -> None:
    module, memo = case.make(bridge), Memo()
    if case.args is not None:
        module(*bridge.carry(case.args, memo), **bridge.carry(case.kwargs, memo))
