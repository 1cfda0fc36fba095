"""Instructions of Python 3.15: what differs from 3.14."""

from __future__ import annotations

from lucerne._src.capture.bytecode.decode import DecodeRule, InstructionTable
from lucerne._src.capture.bytecode.handlers import calls, flow
from lucerne._src.capture.bytecode.registry import register
from lucerne._src.capture.bytecode.tables.py314 import SHARED_FROM_314

_GONE = frozenset(("GET_YIELD_FROM_ITER",))
_YIELD_FROM = DecodeRule(flow.get_yield_from_iter_15, name="GET_YIELD_FROM_ITER")

PY315 = register(
    InstructionTable(
        "3.15",
        3666,
        {
            **{name: rule for name, rule in SHARED_FROM_314.items() if name not in _GONE},
            "CALL_FUNCTION_EX": DecodeRule(calls.call_function_ex_15, always=1),
            "DICT_MERGE": DecodeRule(calls.dict_merge_15),
            "GET_ITER": DecodeRule(
                flow.get_iter_15, "number", (0,), forms=dict.fromkeys((1, 2, 3), _YIELD_FROM)
            ),
        },
        after_loop=2,
        keeps_receiver=True,
        close_returns=True,
    )
)
