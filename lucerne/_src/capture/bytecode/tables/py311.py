"""Instructions of Python 3.11."""

from __future__ import annotations

from lucerne._src.capture.bytecode import attributes
from lucerne._src.capture.bytecode.decode import DecodeRule, InstructionTable
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
    "NOP": DecodeRule(basic.nothing),
    "RESUME": DecodeRule(basic.nothing),
    "POP_TOP": DecodeRule(basic.pop_top),
    "PUSH_NULL": DecodeRule(basic.push_null),
    "COPY": DecodeRule(basic.copy),
    "SWAP": DecodeRule(basic.swap),
    "LOAD_CONST": DecodeRule(basic.load_const, "value"),
    "LOAD_ASSERTION_ERROR": DecodeRule(basic.load_assertion_error),
    "LOAD_BUILD_CLASS": DecodeRule(basic.load_build_class),
    # variables
    "LOAD_FAST": DecodeRule(basic.load_fast),
    "STORE_FAST": DecodeRule(basic.store_fast),
    "DELETE_FAST": DecodeRule(basic.delete_fast),
    "MAKE_CELL": DecodeRule(basic.make_cell),
    "COPY_FREE_VARS": DecodeRule(basic.copy_free_vars),
    "LOAD_DEREF": DecodeRule(basic.load_deref),
    "STORE_DEREF": DecodeRule(basic.store_deref),
    "DELETE_DEREF": DecodeRule(basic.delete_deref),
    "STORE_GLOBAL": DecodeRule(basic.store_global, "value"),
    "DELETE_GLOBAL": DecodeRule(basic.delete_global, "value"),
    # operators
    "BINARY_OP": DecodeRule(operators.binary_op, "symbol", operators.BINARY),
    "IS_OP": DecodeRule(operators.is_op),
    "CONTAINS_OP": DecodeRule(operators.contains_op),
    "UNARY_NOT": DecodeRule(operators.unary_not),
    "UNARY_NEGATIVE": DecodeRule(operators.unary_negative),
    "UNARY_INVERT": DecodeRule(operators.unary_invert),
    # containers
    "BUILD_TUPLE": DecodeRule(containers.build_tuple),
    "BUILD_LIST": DecodeRule(containers.build_list),
    "BUILD_SET": DecodeRule(containers.build_set),
    "BUILD_MAP": DecodeRule(containers.build_map),
    "BUILD_CONST_KEY_MAP": DecodeRule(containers.build_const_key_map),
    "BUILD_STRING": DecodeRule(containers.build_string),
    "BUILD_SLICE": DecodeRule(containers.build_slice),
    "LIST_APPEND": DecodeRule(containers.list_append),
    "SET_ADD": DecodeRule(containers.set_add),
    "MAP_ADD": DecodeRule(containers.map_add),
    "LIST_EXTEND": DecodeRule(containers.list_extend),
    "SET_UPDATE": DecodeRule(containers.set_update),
    "DICT_UPDATE": DecodeRule(containers.dict_update),
    "UNPACK_SEQUENCE": DecodeRule(containers.unpack_sequence),
    "UNPACK_EX": DecodeRule(containers.unpack_ex),
    "BINARY_SUBSCR": DecodeRule(containers.binary_subscr),
    "STORE_SUBSCR": DecodeRule(containers.store_subscr),
    "DELETE_SUBSCR": DecodeRule(containers.delete_subscr),
    # attributes
    "STORE_ATTR": DecodeRule(attributes.store_attr, "value"),
    "DELETE_ATTR": DecodeRule(attributes.delete_attr, "value"),
    # flow
    "JUMP_FORWARD": DecodeRule(flow.jump, "jump"),
    "JUMP_BACKWARD": DecodeRule(flow.jump, "jump"),
    "JUMP_BACKWARD_NO_INTERRUPT": DecodeRule(flow.jump, "jump"),
    "GET_ITER": DecodeRule(flow.get_iter),
    "FOR_ITER": DecodeRule(flow.for_iter, "jump"),
    "RETURN_VALUE": DecodeRule(flow.return_value),
    "RETURN_GENERATOR": DecodeRule(flow.return_generator),
    "YIELD_VALUE": DecodeRule(flow.yield_value),
    "GET_YIELD_FROM_ITER": DecodeRule(flow.get_yield_from_iter),
    "SEND": DecodeRule(flow.send, "jump"),
    # calls
    "DICT_MERGE": DecodeRule(calls.dict_merge),
    "MAKE_FUNCTION": DecodeRule(calls.make_function),
    "BEFORE_WITH": DecodeRule(calls.before_with),
    "WITH_EXCEPT_START": DecodeRule(calls.with_except_start),
    "IMPORT_NAME": DecodeRule(calls.import_name, "value"),
    "IMPORT_FROM": DecodeRule(calls.import_from, "value"),
    # exceptions
    "PUSH_EXC_INFO": DecodeRule(exceptions.push_exc_info),
    "POP_EXCEPT": DecodeRule(exceptions.pop_except),
    "CHECK_EXC_MATCH": DecodeRule(exceptions.check_exc_match),
    "CHECK_EG_MATCH": DecodeRule(exceptions.check_eg_match),
    "RAISE_VARARGS": DecodeRule(exceptions.raise_varargs),
    "RERAISE": DecodeRule(exceptions.reraise),
    # match
    "GET_LEN": DecodeRule(matching.get_len),
    "MATCH_SEQUENCE": DecodeRule(matching.match_sequence),
    "MATCH_MAPPING": DecodeRule(matching.match_mapping),
    "MATCH_KEYS": DecodeRule(matching.match_keys),
    "MATCH_CLASS": DecodeRule(matching.match_class),
}
"""What means the same in all versions, but for what their tables say."""

PY311 = register(
    InstructionTable(
        "3.11",
        3495,
        {
            **SHARED,
            "PRECALL": DecodeRule(basic.nothing),
            "KW_NAMES": DecodeRule(calls.kw_names, "constant"),
            "CALL": DecodeRule(calls.call_11),
            "CALL_FUNCTION_EX": DecodeRule(calls.call_function_ex),
            "LOAD_CLOSURE": DecodeRule(basic.load_fast_raw),
            "LOAD_GLOBAL": DecodeRule(basic.load_global, "both"),
            "LOAD_ATTR": DecodeRule(containers.load_attr, "value"),
            "LOAD_METHOD": DecodeRule(containers.load_method, "value"),
            "LIST_TO_TUPLE": DecodeRule(containers.list_to_tuple),
            "FORMAT_VALUE": DecodeRule(containers.format_value),
            "COMPARE_OP": DecodeRule(operators.compare_op, "symbol", operators.COMPARE),
            "UNARY_POSITIVE": DecodeRule(operators.unary_positive),
            "POP_JUMP_FORWARD_IF_TRUE": DecodeRule(flow.pop_jump_if_true, "jump"),
            "POP_JUMP_FORWARD_IF_FALSE": DecodeRule(flow.pop_jump_if_false, "jump"),
            "POP_JUMP_FORWARD_IF_NONE": DecodeRule(flow.pop_jump_if_none, "jump"),
            "POP_JUMP_FORWARD_IF_NOT_NONE": DecodeRule(flow.pop_jump_if_not_none, "jump"),
            "POP_JUMP_BACKWARD_IF_TRUE": DecodeRule(flow.pop_jump_if_true, "jump"),
            "POP_JUMP_BACKWARD_IF_FALSE": DecodeRule(flow.pop_jump_if_false, "jump"),
            "POP_JUMP_BACKWARD_IF_NONE": DecodeRule(flow.pop_jump_if_none, "jump"),
            "POP_JUMP_BACKWARD_IF_NOT_NONE": DecodeRule(flow.pop_jump_if_not_none, "jump"),
            "JUMP_IF_TRUE_OR_POP": DecodeRule(flow.jump_if_true_or_pop, "jump"),
            "JUMP_IF_FALSE_OR_POP": DecodeRule(flow.jump_if_false_or_pop, "jump"),
            "PREP_RERAISE_STAR": DecodeRule(exceptions.prep_reraise_star),
        },
        after_loop=0,
        keeps_receiver=False,
    )
)
