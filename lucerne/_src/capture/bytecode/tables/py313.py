"""Instructions of Python 3.13: what differs from 3.12."""

from __future__ import annotations

from lucerne._src.capture.bytecode.decode import Rule, Table
from lucerne._src.capture.bytecode.handlers import basic, calls, containers, operators
from lucerne._src.capture.bytecode.registry import register
from lucerne._src.capture.bytecode.tables.py312 import SHARED_FROM_312

_COMPARED = {*operators.COMPARE, *(f"bool({symbol})" for symbol in operators.COMPARE)}

PY313 = register(
    Table(
        "3.13",
        {
            **SHARED_FROM_312,
            "CALL": Rule(calls.call_13),
            "CALL_KW": Rule(calls.call_kw),
            "CALL_FUNCTION_EX": Rule(calls.call_function_ex_13),
            "LOAD_FAST": Rule(basic.load_fast_raw),
            "LOAD_GLOBAL": Rule(basic.load_global_first, "both"),
            "LOAD_ATTR": Rule(containers.load_attr_13, "both"),
            "LOAD_SUPER_ATTR": Rule(calls.load_super_attr_13, "both"),
            "LOAD_FAST_LOAD_FAST": Rule(basic.load_fast_load_fast),
            "STORE_FAST_LOAD_FAST": Rule(basic.store_fast_load_fast),
            "STORE_FAST_STORE_FAST": Rule(basic.store_fast_store_fast),
            "SET_FUNCTION_ATTRIBUTE": Rule(calls.set_function_attribute),
            "CONVERT_VALUE": Rule(containers.convert_value),
            "FORMAT_SIMPLE": Rule(containers.format_simple),
            "FORMAT_WITH_SPEC": Rule(containers.format_with_spec),
            "TO_BOOL": Rule(operators.to_bool),
            "COMPARE_OP": Rule(operators.compare_op_13, "symbol", _COMPARED),
        },
        after_loop=2,
        keeps_receiver=True,
        close_returns=True,
    )
)
