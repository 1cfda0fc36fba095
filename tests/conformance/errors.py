"""M6: what torch refuses, the other framework refuses in the same way.

`M6` asks that an error is raised and has torch's type, `M6t` that its text says the same.
"""

import re
from typing import Any

from tests.conformance import catalog
from tests.conformance.bridge import torch_bridge
from tests.conformance.context import Context, quiet, run_torch
from tests.conformance.outcome import same_error
from tests.conformance.rebind import MissingError
from tests.conformance.result import Sample, Tally, describe


def check_errors(context: Context) -> list[Tally]:
    """Every error input that torch itself refuses."""
    dtype = context.entry.dtype
    types, texts = context.tally("M6", dtype), context.tally("M6t", dtype)
    for label, case in catalog.error_samples(context.entry):
        with quiet(), types.sample(label) as kind, texts.sample(label) as text:
            _check_case(context, case, kind, text)
    return [types, texts]


def _check_case(context: Context, case: Any, kind: Sample, text: Sample) -> None:
    carried = error = None
    try:
        carried = context.bridge.carry_sample(case.sample_input)
    except Exception as refused:  # counted below, once torch has refused the case too
        error = refused
    try:
        run_torch(context.entry.op, torch_bridge().carry_sample(case.sample_input))
    except Exception as refused:
        expected = refused
    else:
        kind.drop()
        text.drop()
        return
    if carried is None:
        for record in (kind, text):
            record.expect(False, "carry", describe(error) if error else "")
        return
    _compare_error(context, case, carried, expected, kind, text)


def _compare_error(
    context: Context, case: Any, carried: Any, expected: Exception, kind: Sample, text: Sample
) -> None:
    try:
        context.call(carried)
    except MissingError as missing:
        for record in (kind, text):
            record.expect(False, "missing", str(missing))
    except Exception as got:
        message = f"{describe(expected)} got {describe(got)}"
        kind.expect(same_error(expected, got), "error type", message)
        said = re.search(case.error_regex, str(got)) is not None
        text.expect(said, "error text", f"/{case.error_regex[:120]}/ got {describe(got)}")
    else:
        for record in (kind, text):
            record.expect(False, "raised", f"no error; torch: {describe(expected)}")
