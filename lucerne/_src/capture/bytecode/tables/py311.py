"""Instructions of Python 3.11."""

from __future__ import annotations

from lucerne._src.capture.bytecode import attributes
from lucerne._src.capture.bytecode.decode import Rule, Table
from lucerne._src.capture.bytecode.handlers import (
    basic,
    calls,
    containers,
    exceptions,
    flow,
    matching,
    operators,
)
from lucerne._src.capture.bytecode.registry import register

SHARED = {
    # the stack, constants
    "NOP": Rule(basic.nothing),
    "RESUME": Rule(basic.nothing),
    "POP_TOP": Rule(basic.pop_top),
    "PUSH_NULL": Rule(basic.push_null),
    "COPY": Rule(basic.copy),
    "SWAP": Rule(basic.swap),
    "LOAD_CONST": Rule(basic.load_const, "value"),
    "LOAD_ASSERTION_ERROR": Rule(basic.load_assertion_error),
    "LOAD_BUILD_CLASS": Rule(basic.load_build_class),
    # variables
    "LOAD_FAST": Rule(basic.load_fast),
    "STORE_FAST": Rule(basic.store_fast),
    "DELETE_FAST": Rule(basic.delete_fast),
    "MAKE_CELL": Rule(basic.make_cell),
    "COPY_FREE_VARS": Rule(basic.copy_free_vars),
    "LOAD_DEREF": Rule(basic.load_deref),
    "STORE_DEREF": Rule(basic.store_deref),
    "DELETE_DEREF": Rule(basic.delete_deref),
    "STORE_GLOBAL": Rule(basic.store_global, "value"),
    "DELETE_GLOBAL": Rule(basic.delete_global, "value"),
    # operators
    "BINARY_OP": Rule(operators.binary_op, "symbol", operators.BINARY),
    "IS_OP": Rule(operators.is_op),
    "CONTAINS_OP": Rule(operators.contains_op),
    "UNARY_NOT": Rule(operators.unary_not),
    "UNARY_NEGATIVE": Rule(operators.unary_negative),
    "UNARY_INVERT": Rule(operators.unary_invert),
    # containers
    "BUILD_TUPLE": Rule(containers.build_tuple),
    "BUILD_LIST": Rule(containers.build_list),
    "BUILD_SET": Rule(containers.build_set),
    "BUILD_MAP": Rule(containers.build_map),
    "BUILD_CONST_KEY_MAP": Rule(containers.build_const_key_map),
    "BUILD_STRING": Rule(containers.build_string),
    "BUILD_SLICE": Rule(containers.build_slice),
    "LIST_APPEND": Rule(containers.list_append),
    "SET_ADD": Rule(containers.set_add),
    "MAP_ADD": Rule(containers.map_add),
    "LIST_EXTEND": Rule(containers.list_extend),
    "SET_UPDATE": Rule(containers.set_update),
    "DICT_UPDATE": Rule(containers.dict_update),
    "UNPACK_SEQUENCE": Rule(containers.unpack_sequence),
    "UNPACK_EX": Rule(containers.unpack_ex),
    "BINARY_SUBSCR": Rule(containers.binary_subscr),
    "STORE_SUBSCR": Rule(containers.store_subscr),
    "DELETE_SUBSCR": Rule(containers.delete_subscr),
    # attributes
    "STORE_ATTR": Rule(attributes.store_attr, "value"),
    "DELETE_ATTR": Rule(attributes.delete_attr, "value"),
    # flow
    "JUMP_FORWARD": Rule(flow.jump, "jump"),
    "JUMP_BACKWARD": Rule(flow.jump, "jump"),
    "JUMP_BACKWARD_NO_INTERRUPT": Rule(flow.jump, "jump"),
    "GET_ITER": Rule(flow.get_iter),
    "FOR_ITER": Rule(flow.for_iter, "jump"),
    "RETURN_VALUE": Rule(flow.return_value),
    "RETURN_GENERATOR": Rule(flow.return_generator),
    "YIELD_VALUE": Rule(flow.yield_value),
    "GET_YIELD_FROM_ITER": Rule(flow.get_yield_from_iter),
    "SEND": Rule(flow.send, "jump"),
    # calls
    "DICT_MERGE": Rule(calls.dict_merge),
    "MAKE_FUNCTION": Rule(calls.make_function),
    "BEFORE_WITH": Rule(calls.before_with),
    "WITH_EXCEPT_START": Rule(calls.with_except_start),
    "IMPORT_NAME": Rule(calls.import_name, "value"),
    "IMPORT_FROM": Rule(calls.import_from, "value"),
    # exceptions
    "PUSH_EXC_INFO": Rule(exceptions.push_exc_info),
    "POP_EXCEPT": Rule(exceptions.pop_except),
    "CHECK_EXC_MATCH": Rule(exceptions.check_exc_match),
    "CHECK_EG_MATCH": Rule(exceptions.check_eg_match),
    "RAISE_VARARGS": Rule(exceptions.raise_varargs),
    "RERAISE": Rule(exceptions.reraise),
    # match
    "GET_LEN": Rule(matching.get_len),
    "MATCH_SEQUENCE": Rule(matching.match_sequence),
    "MATCH_MAPPING": Rule(matching.match_mapping),
    "MATCH_KEYS": Rule(matching.match_keys),
    "MATCH_CLASS": Rule(matching.match_class),
}
"""What means the same in 3.11, 3.12 and 3.13."""

PY311 = register(
    Table(
        "3.11",
        {
            **SHARED,
            "PRECALL": Rule(basic.nothing),
            "KW_NAMES": Rule(calls.kw_names, "constant"),
            "CALL": Rule(calls.call_11),
            "CALL_FUNCTION_EX": Rule(calls.call_function_ex),
            "LOAD_CLOSURE": Rule(basic.load_fast_raw),
            "LOAD_GLOBAL": Rule(basic.load_global, "both"),
            "LOAD_ATTR": Rule(containers.load_attr, "value"),
            "LOAD_METHOD": Rule(containers.load_method, "value"),
            "LIST_TO_TUPLE": Rule(containers.list_to_tuple),
            "FORMAT_VALUE": Rule(containers.format_value),
            "COMPARE_OP": Rule(operators.compare_op, "symbol", operators.COMPARE),
            "UNARY_POSITIVE": Rule(operators.unary_positive),
            "POP_JUMP_FORWARD_IF_TRUE": Rule(flow.pop_jump_if_true, "jump"),
            "POP_JUMP_FORWARD_IF_FALSE": Rule(flow.pop_jump_if_false, "jump"),
            "POP_JUMP_FORWARD_IF_NONE": Rule(flow.pop_jump_if_none, "jump"),
            "POP_JUMP_FORWARD_IF_NOT_NONE": Rule(flow.pop_jump_if_not_none, "jump"),
            "POP_JUMP_BACKWARD_IF_TRUE": Rule(flow.pop_jump_if_true, "jump"),
            "POP_JUMP_BACKWARD_IF_FALSE": Rule(flow.pop_jump_if_false, "jump"),
            "POP_JUMP_BACKWARD_IF_NONE": Rule(flow.pop_jump_if_none, "jump"),
            "POP_JUMP_BACKWARD_IF_NOT_NONE": Rule(flow.pop_jump_if_not_none, "jump"),
            "JUMP_IF_TRUE_OR_POP": Rule(flow.jump_if_true_or_pop, "jump"),
            "JUMP_IF_FALSE_OR_POP": Rule(flow.jump_if_false_or_pop, "jump"),
            "PREP_RERAISE_STAR": Rule(exceptions.prep_reraise_star),
        },
        after_loop=0,
        keeps_receiver=False,
    )
)
