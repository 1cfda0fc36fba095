"""Code objects as lists of instructions that the machine can run, made once for each."""

from __future__ import annotations

import dis
import opcode
import sys
import weakref
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import MAGIC_NUMBER
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_ITERABLE_COROUTINE
from types import CodeType
from typing import Any

Handler = Callable[[Any, Any, Any], Any]
"""`handler(machine, frame, argument)`; a true result: another frame may be on top now."""

ASYNC = CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
MAGIC = int.from_bytes(MAGIC_NUMBER[:2], "little")
"""The number of the running Python's instruction set. It is the same in all releases of a version;
its alphas and betas have others."""
_COMMON: tuple[Any, ...] = tuple(getattr(opcode, "_common_constants", ()))
"""Constants that the interpreter itself keeps, in the order of their numbers."""


_AT_GENERATOR_EXPRESSION = 4
"""The argument of RESUME before a generator expression has taken its iterator."""


@dataclass(frozen=True)
class DecodeRule:
    """How an instruction of a table is run."""

    handler: Handler
    argument: str = "number"
    """What the handler gets: "number" (the bare one), "value" (the constant or the name), "jump"
    (the number of the instruction it leads to), "symbol" (the operator as it is written),
    "constant" (by its number), "both" (number and value) or "common" (the constant that the
    interpreter keeps under this number)."""
    known: Container[Any] | None = None
    """The arguments that the handler understands, where it doesn't understand all."""
    name: str = ""
    """What those who look at instructions call it, where this Python has a name of its own for
    what others have too. (Tables are the only place that knows such names.)"""
    always: Any = None
    """The argument, where this Python gives none because it is always the same."""
    forms: Mapping[Any, DecodeRule] = field(default_factory=dict)
    """By argument: the rules of what is another instruction in the words of `name`."""


@dataclass
class InstructionTable:
    """The instructions of one version of Python."""

    version: str
    magic: int
    """The number of the instruction set it describes (`importlib.util.MAGIC_NUMBER`)."""
    rules: dict[str, DecodeRule]
    after_loop: int
    """How many instructions at the end of a `for` are passed over when it is exhausted."""
    keeps_receiver: bool
    """Whether SEND leaves its receiver on the stack at the end (for END_SEND to remove)."""
    close_returns: bool = False
    """Whether `close` of a generator gives what the generator returns."""


@dataclass(frozen=True)
class Opcode:
    """One instruction."""

    name: str
    handler: Handler
    argument: Any
    offset: int


@dataclass(frozen=True)
class Region:
    """Instructions with a handler for exceptions."""

    start: int
    end: int
    target: int
    depth: int
    """How much of the stack the handler keeps."""
    lasti: bool
    """Whether it wants to know which instruction raised."""


@dataclass
class Decoded:
    """A code object, ready to run."""

    code: Any
    """A weak reference to it."""
    table: InstructionTable
    steps: list[tuple[Handler, Any]]
    """(handler, argument) of each instruction: all that the inner loop looks at."""
    ops: list[Opcode]
    lines: list[int]
    regions: list[Region]
    slot_names: tuple[str, ...]
    cell_names: frozenset[str]
    cell_slots: dict[str, int]
    positions: dict[int, int] = field(default_factory=dict)
    """From offsets to numbers of instructions."""
    untold: int = 0
    """How many instructions at the beginning leave no entry in a traceback: in Python 3.15 a
    generator expression itself takes the iterator, for the one who writes it."""

    def region(self, at: int) -> Region | None:
        """The innermost handler of an instruction."""
        for region in self.regions:
            if region.start <= at < region.end:
                return region
        return None


_known: dict[int, tuple[Any, InstructionTable, Decoded | str]] = {}


def decode(code: CodeType, table: InstructionTable | None) -> Decoded | str:
    """The instructions of a code object, or why they can't be run in words."""
    if table is None:
        return f"there is no instruction table for Python {VERSION} (bytecode {MAGIC})"
    key = id(code)
    found = _known.get(key)
    if found is not None and found[1] is table:
        return found[2]
    reference = weakref.ref(code, lambda _: _known.pop(key, None))
    made = _decode(code, table, reference)
    _known[key] = (reference, table, made)
    return made


def _decode(code: CodeType, table: InstructionTable, reference: Any) -> Decoded | str:
    if code.co_flags & ASYNC:
        return f"{code.co_qualname} is asynchronous"
    instructions = list(dis.get_instructions(code))
    kept = [i for i in instructions if i.opname not in ("EXTENDED_ARG", "CACHE")]
    positions = _positions(instructions)
    ops: list[Opcode] = []
    lines: list[int] = []
    line = code.co_firstlineno
    for one in kept:
        rule = table.rules.get(one.opname)
        if rule is None:
            return f"unknown instruction {one.opname} of Python {table.version}"
        argument = _argument(one, rule, positions, code)
        rule = rule.forms.get(argument, rule) if rule.forms else rule
        if rule.known is not None and argument not in rule.known:
            return f"unknown instruction {one.opname} {argument} of Python {table.version}"
        ops.append(Opcode(rule.name or one.opname, rule.handler, argument, one.offset))
        known = one.positions.lineno if one.positions is not None else None
        line = line if known is None else known
        lines.append(line)
    shared = [n for n in code.co_cellvars if n not in code.co_varnames]
    names = (*code.co_varnames, *shared, *code.co_freevars)
    cells = frozenset((*code.co_cellvars, *code.co_freevars))
    return Decoded(
        reference, table, [(o.handler, o.argument) for o in ops], ops, lines,
        _regions(code, positions, len(ops)), names, cells,
        {n: names.index(n) for n in cells}, positions, _untold(ops),
    )  # fmt: skip


def _untold(ops: list[Opcode]) -> int:
    begins = any(op.name == "RESUME" and op.argument == _AT_GENERATOR_EXPRESSION for op in ops)
    return [op.name for op in ops].index("RETURN_GENERATOR") if begins else 0


def _positions(instructions: list[dis.Instruction]) -> dict[int, int]:
    """From offsets to numbers of kept instructions; a prefix counts as what it belongs to."""
    found: dict[int, int] = {}
    number = 0
    for one in instructions:
        found[one.offset] = number
        if one.opname not in ("EXTENDED_ARG", "CACHE"):
            number += 1
    if instructions:
        found[instructions[-1].offset + 2] = number
    return found


def _argument(
    one: dis.Instruction, rule: DecodeRule, positions: dict[int, int], code: CodeType
) -> Any:
    match rule.argument:
        case "jump":
            return positions[one.argval]
        case "value":
            return one.argval
        case "symbol":
            return one.argrepr
        case "both":
            return one.arg, one.argval
        case "constant":
            assert one.arg is not None
            return code.co_consts[one.arg]
        case "common":
            assert one.arg is not None
            return _COMMON[one.arg]
    return one.arg if rule.always is None else rule.always


def _numbers(table: bytes) -> Iterator[int]:
    """The numbers of an exception table: six bits in each byte, the largest first, bit 6 set in
    all bytes of a number but the last. (Bit 7 marks where an entry begins.)"""
    number = 0
    for byte in table:
        number = number << 6 | byte & 63
        if not byte & 64:
            yield number
            number = 0


def _regions(code: CodeType, positions: dict[int, int], count: int) -> list[Region]:
    """The exception table: (start, length, target, depth and lasti), counted in code units."""
    numbers = list(_numbers(code.co_exceptiontable))
    found = []
    for k in range(0, len(numbers) - 3, 4):
        start, length, target, tail = numbers[k : k + 4]
        end = _position(positions, 2 * (start + length), count)
        first = _position(positions, 2 * start, count)
        at = _position(positions, 2 * target, count)
        found.append(Region(first, end, at, tail >> 1, bool(tail & 1)))
    return found


def _position(positions: dict[int, int], offset: int, count: int) -> int:
    """The first instruction at or after an offset (caches have no instruction of their own)."""
    last = max(positions, default=0)
    while offset <= last:
        if offset in positions:
            return positions[offset]
        offset += 2
    return count
