"""Instructions of Python 3.14: what differs from 3.13."""

from __future__ import annotations

from lucerne._src.capture.bytecode.decode import DecodeRule, InstructionTable
from lucerne._src.capture.bytecode.handlers import (
    basic,
    calls,
    containers,
    flow,
    operators,
    templates,
)
from lucerne._src.capture.bytecode.registry import register
from lucerne._src.capture.bytecode.tables.py313 import PY313

_GONE = frozenset(
    (
        "BEFORE_WITH", "BINARY_SUBSCR", "BUILD_CONST_KEY_MAP", "LOAD_ASSERTION_ERROR",
        "RETURN_CONST",
    )
)  # fmt: skip
_ITEM = DecodeRule(containers.binary_subscr, name="BINARY_SUBSCR")

SHARED_FROM_314 = {
    **{name: rule for name, rule in PY313.rules.items() if name not in _GONE},
    "BINARY_OP": DecodeRule(operators.binary_op, "symbol", operators.BINARY, forms={"[]": _ITEM}),
    "BUILD_INTERPOLATION": DecodeRule(templates.build_interpolation),
    "BUILD_TEMPLATE": DecodeRule(templates.build_template),
    "CALL_FUNCTION_EX": DecodeRule(calls.call_function_ex_14, always=1),
    "LOAD_COMMON_CONSTANT": DecodeRule(basic.load_const, "common", name="LOAD_CONST"),
    "LOAD_FAST_BORROW": DecodeRule(basic.load_fast_raw, name="LOAD_FAST"),
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": DecodeRule(
        basic.load_fast_load_fast, name="LOAD_FAST_LOAD_FAST"
    ),
    "LOAD_SMALL_INT": DecodeRule(basic.load_const, name="LOAD_CONST"),
    "LOAD_SPECIAL": DecodeRule(calls.load_special, "symbol", ("__enter__", "__exit__")),
    "NOT_TAKEN": DecodeRule(basic.nothing, name="NOP"),
    "POP_ITER": DecodeRule(flow.pop_iter, name="POP_TOP"),
    "SET_FUNCTION_ATTRIBUTE": DecodeRule(calls.set_function_attribute, "number", calls.DEFERRED),
    "UNPACK_SEQUENCE": DecodeRule(containers.unpack_sequence_14),
    "WITH_EXCEPT_START": DecodeRule(calls.with_except_start_14),
}
"""What means the same in 3.14 and 3.15."""

PY314 = register(
    InstructionTable(
        "3.14", 3627, SHARED_FROM_314, after_loop=2, keeps_receiver=True, close_returns=True
    )
)
