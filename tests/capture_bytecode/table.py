"""All programs: `CASES`."""

from tests.capture_bytecode import (
    programs_calls,
    programs_classes,
    programs_closures,
    programs_comprehensions,
    programs_containers,
    programs_contexts,
    programs_control,
    programs_effects,
    programs_exceptions,
    programs_generators,
    programs_matching,
    programs_operators,
    programs_records,
    programs_strings,
    programs_syntax,
    programs_tensors,
)
from tests.capture_bytecode.cases import CASES as CASES

MODULES = [
    programs_control, programs_closures, programs_classes, programs_exceptions,
    programs_generators, programs_containers, programs_contexts, programs_effects,
    programs_calls, programs_matching, programs_comprehensions, programs_records,
    programs_operators, programs_strings, programs_tensors,
    *[programs_syntax] * bool(programs_syntax.SPACES),
]  # fmt: skip
