"""Instructions of Python 3.12: what differs from 3.11."""

from __future__ import annotations

from lucerne._src.capture.bytecode.decode import Rule, Table
from lucerne._src.capture.bytecode.handlers import (
    basic,
    calls,
    containers,
    flow,
    intrinsics,
    operators,
)
from lucerne._src.capture.bytecode.registry import register
from lucerne._src.capture.bytecode.tables.py311 import SHARED

SHARED_FROM_312 = {
    **SHARED,
    "CALL_INTRINSIC_1": Rule(intrinsics.intrinsic, "symbol", intrinsics.HELPERS),
    "CALL_INTRINSIC_2": Rule(intrinsics.intrinsic, "symbol", intrinsics.HELPERS),
    "BINARY_SLICE": Rule(containers.binary_slice),
    "STORE_SLICE": Rule(containers.store_slice),
    "LOAD_FAST_CHECK": Rule(basic.load_fast),
    "LOAD_FAST_AND_CLEAR": Rule(basic.load_fast_and_clear),
    "RETURN_CONST": Rule(flow.return_const, "value"),
    "POP_JUMP_IF_TRUE": Rule(flow.pop_jump_if_true, "jump"),
    "POP_JUMP_IF_FALSE": Rule(flow.pop_jump_if_false, "jump"),
    "POP_JUMP_IF_NONE": Rule(flow.pop_jump_if_none, "jump"),
    "POP_JUMP_IF_NOT_NONE": Rule(flow.pop_jump_if_not_none, "jump"),
    "END_FOR": Rule(flow.end_for),
    "END_SEND": Rule(flow.end_send),
    "CLEANUP_THROW": Rule(flow.cleanup_throw),
}
"""What means the same in 3.12 and 3.13."""

PY312 = register(
    Table(
        "3.12",
        {
            **SHARED_FROM_312,
            "KW_NAMES": Rule(calls.kw_names, "constant"),
            "CALL": Rule(calls.call_11),
            "CALL_FUNCTION_EX": Rule(calls.call_function_ex),
            "LOAD_CLOSURE": Rule(basic.load_fast_raw),
            "LOAD_GLOBAL": Rule(basic.load_global, "both"),
            "LOAD_ATTR": Rule(containers.load_attr_12, "both"),
            "LOAD_SUPER_ATTR": Rule(calls.load_super_attr_12, "both"),
            "FORMAT_VALUE": Rule(containers.format_value),
            "COMPARE_OP": Rule(operators.compare_op, "symbol", operators.COMPARE),
        },
        after_loop=1,
        keeps_receiver=True,
    )
)
