"""Instructions of Python 3.12: what differs from 3.11."""

from __future__ import annotations

from lucerne._src.capture.bytecode.decode import DecodeRule, InstructionTable
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
    "CALL_INTRINSIC_1": DecodeRule(intrinsics.intrinsic, "symbol", intrinsics.HELPERS),
    "CALL_INTRINSIC_2": DecodeRule(intrinsics.intrinsic, "symbol", intrinsics.HELPERS),
    "BINARY_SLICE": DecodeRule(containers.binary_slice),
    "STORE_SLICE": DecodeRule(containers.store_slice),
    "LOAD_FAST_CHECK": DecodeRule(basic.load_fast),
    "LOAD_FAST_AND_CLEAR": DecodeRule(basic.load_fast_and_clear),
    "RETURN_CONST": DecodeRule(flow.return_const, "value"),
    "POP_JUMP_IF_TRUE": DecodeRule(flow.pop_jump_if_true, "jump"),
    "POP_JUMP_IF_FALSE": DecodeRule(flow.pop_jump_if_false, "jump"),
    "POP_JUMP_IF_NONE": DecodeRule(flow.pop_jump_if_none, "jump"),
    "POP_JUMP_IF_NOT_NONE": DecodeRule(flow.pop_jump_if_not_none, "jump"),
    "END_FOR": DecodeRule(flow.end_for),
    "END_SEND": DecodeRule(flow.end_send),
    "CLEANUP_THROW": DecodeRule(flow.cleanup_throw),
}
"""What means the same from 3.12 on, but for what later tables say."""

PY312 = register(
    InstructionTable(
        "3.12",
        3531,
        {
            **SHARED_FROM_312,
            "KW_NAMES": DecodeRule(calls.kw_names, "constant"),
            "CALL": DecodeRule(calls.call_11),
            "CALL_FUNCTION_EX": DecodeRule(calls.call_function_ex),
            "LOAD_CLOSURE": DecodeRule(basic.load_fast_raw),
            "LOAD_GLOBAL": DecodeRule(basic.load_global, "both"),
            "LOAD_ATTR": DecodeRule(containers.load_attr_12, "both"),
            "LOAD_SUPER_ATTR": DecodeRule(calls.load_super_attr_12, "both"),
            "FORMAT_VALUE": DecodeRule(containers.format_value),
            "COMPARE_OP": DecodeRule(operators.compare_op, "symbol", operators.COMPARE),
        },
        after_loop=1,
        keeps_receiver=True,
    )
)
