"""Instructions of Python 3.13: what differs from 3.12."""

from __future__ import annotations

from lucerne._src.capture.bytecode.decode import DecodeRule, InstructionTable
from lucerne._src.capture.bytecode.handlers import basic, calls, containers, operators
from lucerne._src.capture.bytecode.registry import register
from lucerne._src.capture.bytecode.tables.py312 import SHARED_FROM_312

_COMPARED = {*operators.COMPARE, *(f"bool({symbol})" for symbol in operators.COMPARE)}

PY313 = register(
    InstructionTable(
        "3.13",
        3571,
        {
            **SHARED_FROM_312,
            "CALL": DecodeRule(calls.call_13),
            "CALL_KW": DecodeRule(calls.call_kw),
            "CALL_FUNCTION_EX": DecodeRule(calls.call_function_ex_13),
            "LOAD_FAST": DecodeRule(basic.load_fast_raw),
            "LOAD_GLOBAL": DecodeRule(basic.load_global_first, "both"),
            "LOAD_ATTR": DecodeRule(containers.load_attr_13, "both"),
            "LOAD_SUPER_ATTR": DecodeRule(calls.load_super_attr_13, "both"),
            "LOAD_FAST_LOAD_FAST": DecodeRule(basic.load_fast_load_fast),
            "STORE_FAST_LOAD_FAST": DecodeRule(basic.store_fast_load_fast),
            "STORE_FAST_STORE_FAST": DecodeRule(basic.store_fast_store_fast),
            "SET_FUNCTION_ATTRIBUTE": DecodeRule(
                calls.set_function_attribute, "number", calls.ATTRIBUTES
            ),
            "CONVERT_VALUE": DecodeRule(containers.convert_value),
            "FORMAT_SIMPLE": DecodeRule(containers.format_simple),
            "FORMAT_WITH_SPEC": DecodeRule(containers.format_with_spec),
            "TO_BOOL": DecodeRule(operators.to_bool),
            "COMPARE_OP": DecodeRule(operators.compare_op_13, "symbol", _COMPARED),
        },
        after_loop=2,
        keeps_receiver=True,
        close_returns=True,
    )
)
