"""A pickle machine that can't run code.

A pickle is a program for a small stack machine. Python's own machine lets the program import
anything and call it; this one has neither an import nor a call. Names are looked up in a fixed
table (`rebuild.py`), and what stands there is not the function of that name but a builder of ours,
which checks its arguments. Instructions, their operands and the types they may act on are checked;
memory is counted before it is taken.
"""

from __future__ import annotations

import collections
import struct
import sys
from collections.abc import Callable
from typing import Any

from lucerne._src.base.device import device as Device
from lucerne._src.base.dtype import dtype as DType
from lucerne._src.io import arrays
from lucerne._src.io.errors import CorruptFileError, LoadError, UnsafeFileError
from lucerne._src.io.scan import recalled

MARK_COST = 72
TUPLE_COST = 56
CALL_COST = 64
TEMPORARY: dict[type, int] = {collections.OrderedDict: CALL_COST + 100}
"""What arguments of these types were counted as, if their only use is a call (see `release`)."""
MAX_INTEGER_BYTES = 512
MAX_KEY_PARTS = 256
MAX_ODD_KEYS = 16384
SCALAR_KEYS = (str, bytes, int, float, bool, type(None), DType, Device)
DICTS = (dict, collections.OrderedDict, collections.defaultdict)


class PickleBuilder:
    """What a name in a pickle stands for.

    `build` makes what calling the name would; `new` what making an instance without arguments to
    `__init__` would (None: not allowed). `thing` is what it is as a value (None: it is none): a
    class or function that the user vouches for.
    """

    __slots__ = ("build", "name", "new", "thing")

    def __init__(
        self,
        name: str,
        build: Callable[[PickleMachine, tuple[Any, ...]], Any] | None = None,
        new: Callable[[PickleMachine, tuple[Any, ...]], Any] | None = None,
        thing: Any = None,
    ) -> None:
        self.name, self.build, self.new, self.thing = name, build, new, thing

    def __repr__(self) -> str:
        return self.name


class PickleBudget:
    """Memory that a file may still take. See `load(memory_limit=...)`."""

    def __init__(self, limit: int) -> None:
        self.limit = self.left = limit

    def take(self, nbytes: int) -> None:
        self.left -= nbytes
        if self.left < 0:
            raise UnsafeFileError(
                f"loading would take more than {self.limit} bytes of memory, which is more than a "
                "file of this size should need. If you trust it, allow more with "
                "load(f, memory_limit=...)"
            )

    def give_back(self, nbytes: int) -> None:
        """Count memory as freed that `take` had counted."""
        self.left += nbytes


class PickleMachine:
    """Runs one pickle.

    `find(module, name)` answers for names, `persistent(id)` for storages, `build(target, state)`
    for objects that the machine itself doesn't know.
    """

    def __init__(
        self,
        data: bytes,
        find: Callable[[str, str], Any],
        persistent: Callable[[Any], Any],
        set_state: Callable[[PickleMachine, Any, Any], Any],
        budget: PickleBudget,
        encoding: str = "utf-8",
    ) -> None:
        self.data, self.at, self.end = data, 0, len(data)
        self.find, self.persistent, self.set_state = find, persistent, set_state
        self.budget = budget
        self.encoding = encoding
        self.stack: list[Any] = []
        self.outer: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.memoized = 0
        self.wanted = recalled(data)
        self.odd_keys = 0
        self.running = True

    def run(self) -> Any:
        """Execute up to STOP; the one value left. `at` is then behind the pickle."""
        table = INSTRUCTIONS
        while self.running:
            if self.at >= self.end:
                raise CorruptFileError("the pickle ends without its STOP instruction")
            code = self.data[self.at]
            self.at += 1
            step = table.get(code)
            if step is None:
                raise self.bad_instruction(code)
            step(self)
        if len(self.stack) != 1 or self.outer:
            raise CorruptFileError("the pickle leaves more or less than one value")
        found = self.stack[0]
        refuse_builders(found)
        return found

    def bad_instruction(self, code: int) -> LoadError:
        name = REFUSED.get(code)
        if name is None:
            return CorruptFileError(f"byte {code:#04x} at {self.at - 1} is no pickle instruction")
        return UnsafeFileError(
            f"Weights only load failed: the pickle uses {name} at byte {self.at - 1}, an "
            "instruction that no checkpoint of torch.save contains"
        )

    # -- operands and stack ----------------------------------------------------------------------

    def take(self, count: int) -> bytes:
        start = self.at
        self.at = start + count
        if self.at > self.end:
            raise CorruptFileError("the pickle ends inside an instruction")
        return self.data[start : self.at]

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "little")

    def line(self) -> str:
        """Text up to the next line feed (names of globals)."""
        start = self.at
        stop = min(self.end, start + 1024)
        while self.at < stop:
            self.at += 1
            if self.data[self.at - 1] == 10:
                return decode(self.data[start : self.at - 1], "utf-8")
        raise CorruptFileError("the pickle has a name that does not end")

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if not self.stack:
            raise CorruptFileError("the pickle takes a value from an empty stack")
        return self.stack.pop()

    def top(self) -> Any:
        if not self.stack:
            raise CorruptFileError("the pickle uses a value from an empty stack")
        return self.stack[-1]

    def marked(self) -> list[Any]:
        """The values since the last mark, which is removed."""
        if not self.outer:
            raise CorruptFileError("the pickle goes back to a mark that it did not set")
        found = self.stack
        self.stack = self.outer.pop()
        self.budget.give_back(MARK_COST)
        return found

    # -- containers ------------------------------------------------------------------------------

    def extend(self, values: list[Any]) -> None:
        target = self.top()
        if type(target) is not list and type(target) is not collections.deque:
            raise UnsafeFileError(f"the pickle appends to a {type(target).__name__}")
        self.budget.take(10 * len(values))
        target.extend(map(as_value, values))

    def update(self, values: list[Any]) -> None:
        target = self.top()
        if type(target) not in DICTS:
            raise UnsafeFileError(f"the pickle sets items of a {type(target).__name__}")
        if len(values) % 2:
            raise CorruptFileError("the pickle has a dictionary key without a value")
        self.budget.take(50 * len(values))
        before = len(target)
        for n in range(0, len(values), 2):
            self.check_key(values[n])
            target[values[n]] = as_value(values[n + 1])
        if len(target) != before + len(values) // 2:
            raise CorruptFileError("the pickle sets a dictionary key twice")

    def add(self, values: list[Any]) -> None:
        target = self.top()
        if type(target) is not set:
            raise UnsafeFileError(f"the pickle adds members to a {type(target).__name__}")
        target.update(self.keys(values))

    def keys(self, values: Any) -> Any:
        """The same values, checked to be fit for a set."""
        self.budget.take(75 * len(values))
        for value in values:
            self.check_key(value)
        return values

    def check_key(self, key: Any) -> None:
        """Keys are hashed: deep ones could exhaust the stack, crafted ones make it slow."""
        kind = type(key)
        if kind is str or kind is bytes or (kind is int and 0 <= key < 1 << 20):
            return
        parts, seen = [key], 0
        while parts:
            part = parts.pop()
            seen += 1
            if isinstance(part, tuple) and seen + len(part) <= MAX_KEY_PARTS:
                parts.extend(part)
            elif not isinstance(part, (*SCALAR_KEYS, frozenset)) and not arrays.is_scalar(part):
                raise UnsafeFileError(f"the pickle uses a {type(part).__name__} as a key")
        if seen > 1 and any(isinstance(part, str | bytes) for part in key):
            return  # hashes of text can't be foreseen by whoever wrote the file
        self.odd_keys += 1
        if self.odd_keys > MAX_ODD_KEYS:
            raise UnsafeFileError(
                f"the pickle has more than {MAX_ODD_KEYS} keys that are neither text nor small "
                "integers, which could be crafted to be slow"
            )

    # -- names and objects -----------------------------------------------------------------------

    def look_up(self, module: Any, name: Any) -> None:
        if type(module) is not str or type(name) is not str:
            raise UnsafeFileError("the pickle names a global by something that is not text")
        self.push(self.find(module, name))

    def reduce(self) -> None:
        args, builder = self.pop(), self.pop()
        if type(builder) is not PickleBuilder or builder.build is None or type(args) is not tuple:
            raise UnsafeFileError(f"the pickle calls {describe(builder)}, which can't be called")
        self.budget.take(CALL_COST)
        made = builder.build(self, args)
        self.release(args)
        self.push(made)

    def release(self, args: tuple[Any, ...]) -> None:
        """Count arguments as freed that nobody else holds: this call is the end of them."""
        if sys.getrefcount(args) > 3:  # the caller, this function, the question itself
            return
        self.budget.give_back(TUPLE_COST + 8 * len(args))
        for n in range(len(args)):
            kind = type(args[n])
            if kind is tuple and args[n] and sys.getrefcount(args[n]) <= 2:
                self.budget.give_back(TUPLE_COST + 8 * len(args[n]))
            elif kind in TEMPORARY and sys.getrefcount(args[n]) <= 2:
                self.budget.give_back(TEMPORARY[kind])

    def new_object(self) -> None:
        args, builder = self.pop(), self.pop()
        if type(builder) is not PickleBuilder or builder.new is None or type(args) is not tuple:
            raise UnsafeFileError(f"the pickle makes an instance of {describe(builder)}")
        self.budget.take(CALL_COST)
        self.push(builder.new(self, args))

    def build_state(self) -> None:
        state = self.pop()
        target = self.top()
        made = self.set_state(self, target, state)
        if made is not target:  # a value that can't change is replaced wherever it was noted
            self.stack[-1] = made
            for index, noted in self.memo.items():
                if noted is target:
                    self.memo[index] = made

    # -- memo and constants ----------------------------------------------------------------------

    def note(self, index: int) -> None:
        value = self.top()
        if self.wanted is None or index in self.wanted:
            self.budget.take(0 if index in self.memo else 100)
            self.memo[index] = value

    def memoize(self) -> None:
        """Note under the next number (protocol 4)."""
        self.note(self.memoized)
        self.memoized += 1

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise CorruptFileError(f"the pickle recalls value {index}, which it did not note")
        self.budget.take(8)
        self.push(self.memo[index])

    def constant(self, value: Any, cost: int) -> None:
        self.budget.take(cost)
        self.stack.append(value)

    def text(self, raw: bytes) -> None:
        value = decode(raw, "utf-8")
        self.constant(value, 8 + sys.getsizeof(value))

    def old_text(self, raw: bytes) -> None:
        """A Python 2 string: text in `encoding`, or bytes."""
        value = raw if self.encoding == "bytes" else decode(raw, self.encoding)
        self.constant(value, 8 + sys.getsizeof(value))

    def bytes_(self, raw: bytes) -> None:
        self.constant(raw, 40 + len(raw))

    def sized(self, width: int) -> bytes:
        """Bytes preceded by their number."""
        return self.take(self.number(width))

    def integer(self, width: int) -> None:
        length = self.number(width)
        if length > MAX_INTEGER_BYTES:
            raise UnsafeFileError(f"the pickle has an integer of {length} bytes")
        self.constant(int.from_bytes(self.take(length), "little", signed=True), 40 + length)

    def make_tuple(self, count: int) -> None:
        if len(self.stack) < count:
            raise CorruptFileError("the pickle makes a tuple of values that are not there")
        found = tuple(map(as_value, self.stack[-count:]))
        del self.stack[-count:]
        self.constant(found, TUPLE_COST)  # its places were counted when they were on the stack

    def stop(self) -> None:
        self.running = False


def decode(raw: bytes, encoding: str) -> str:
    try:
        return raw.decode(encoding, "surrogatepass" if encoding == "utf-8" else "strict")
    except (UnicodeDecodeError, LookupError) as error:
        raise CorruptFileError(f"the pickle has text that is not {encoding}: {error}") from None


def describe(value: Any) -> str:
    return value.name if isinstance(value, PickleBuilder) else f"a {type(value).__name__}"


def as_value(found: Any) -> Any:
    """What a container holds: where a name stands for a value, that."""
    return found if type(found) is not PickleBuilder or found.thing is None else found.thing


def refuse_builders(root: Any) -> None:
    """Names are for building; none may be left in the result."""
    seen: set[int] = set()
    left = [root]
    while left:
        value = left.pop()
        kind = type(value)
        if isinstance(value, PickleBuilder):
            raise UnsafeFileError(f"the checkpoint contains {value.name} itself, not a value")
        if kind in (list, tuple, set, frozenset, collections.deque) and value:
            if id(value) not in seen:
                seen.add(id(value))
                left.extend(value)
        elif isinstance(value, dict) and id(value) not in seen:
            seen.add(id(value))
            left.extend(value)
            left.extend(value.values())


def _mark(m: PickleMachine) -> None:
    m.budget.take(MARK_COST)
    m.outer.append(m.stack)
    m.stack = []


def _pop(m: PickleMachine) -> None:
    if m.stack:
        m.stack.pop()
    else:
        m.marked()


def _pop_mark(m: PickleMachine) -> None:
    m.marked()


def _frame(m: PickleMachine) -> None:
    m.take(8)  # a hint for reading ahead


def _tuple(m: PickleMachine) -> None:
    values = m.marked()
    m.constant(tuple(map(as_value, values)), TUPLE_COST)


def _frozenset(m: PickleMachine) -> None:
    m.push(frozenset(m.keys(m.marked())))


def _bytearray(m: PickleMachine) -> None:
    raw = m.sized(8)
    m.constant(bytearray(raw), 60 + len(raw))


def _protocol(m: PickleMachine) -> None:
    version = m.number(1)
    if not 2 <= version <= 5:
        raise UnsafeFileError(f"pickle protocol {version} is not one that torch.save writes")


def _stack_global(m: PickleMachine) -> None:
    name, module = m.pop(), m.pop()
    m.look_up(module, name)


def _persistent(m: PickleMachine) -> None:
    given = m.pop()
    made = m.persistent(given)
    m.budget.take(TEMPORARY.get(type(made), CALL_COST))
    if type(given) is tuple:
        m.release(given)
    m.push(made)


def _pair(m: PickleMachine) -> None:
    value, key = m.pop(), m.pop()
    m.update([key, value])


INSTRUCTIONS: dict[int, Callable[[PickleMachine], None]] = {
    ord("."): PickleMachine.stop,
    0x80: _protocol,
    0x95: _frame,
    ord("("): _mark,
    ord("0"): _pop,
    ord("1"): _pop_mark,
    ord("N"): lambda m: m.constant(None, 8),
    0x88: lambda m: m.constant(True, 8),
    0x89: lambda m: m.constant(False, 8),
    ord("K"): lambda m: m.constant(m.number(1), 8),
    ord("M"): lambda m: m.constant(m.number(2), 36),
    ord("J"): lambda m: m.constant(struct.unpack("<i", m.take(4))[0], 40),
    0x8A: lambda m: m.integer(1),
    0x8B: lambda m: m.integer(4),
    ord("G"): lambda m: m.constant(struct.unpack(">d", m.take(8))[0], 40),
    ord("X"): lambda m: m.text(m.sized(4)),
    0x8C: lambda m: m.text(m.sized(1)),
    0x8D: lambda m: m.text(m.sized(8)),
    ord("T"): lambda m: m.old_text(m.sized(4)),
    ord("U"): lambda m: m.old_text(m.sized(1)),
    ord("B"): lambda m: m.bytes_(m.sized(4)),
    ord("C"): lambda m: m.bytes_(m.sized(1)),
    0x8E: lambda m: m.bytes_(m.sized(8)),
    0x96: _bytearray,
    ord("]"): lambda m: m.constant([], 80),
    ord("}"): lambda m: m.constant({}, 150),
    ord(")"): lambda m: m.constant((), 8),
    0x8F: lambda m: m.constant(set(), 230),
    ord("t"): _tuple,
    0x85: lambda m: m.make_tuple(1),
    0x86: lambda m: m.make_tuple(2),
    0x87: lambda m: m.make_tuple(3),
    0x91: _frozenset,
    ord("a"): lambda m: m.extend([m.pop()]),
    ord("e"): lambda m: m.extend(m.marked()),
    ord("s"): _pair,
    ord("u"): lambda m: m.update(m.marked()),
    0x90: lambda m: m.add(m.marked()),
    ord("q"): lambda m: m.note(m.number(1)),
    ord("r"): lambda m: m.note(m.number(4)),
    0x94: PickleMachine.memoize,
    ord("h"): lambda m: m.recall(m.number(1)),
    ord("j"): lambda m: m.recall(m.number(4)),
    ord("c"): lambda m: m.look_up(m.line(), m.line()),
    0x93: _stack_global,
    ord("R"): PickleMachine.reduce,
    0x81: PickleMachine.new_object,
    ord("b"): PickleMachine.build_state,
    ord("Q"): _persistent,
}
"""Every instruction there is, by its byte."""

REFUSED = {
    ord("P"): "PERSID", ord("i"): "INST", ord("o"): "OBJ", 0x92: "NEWOBJ_EX", 0x82: "EXT1",
    0x83: "EXT2", 0x84: "EXT4", ord("2"): "DUP", ord("d"): "DICT", ord("l"): "LIST",
    ord("I"): "INT", ord("L"): "LONG", ord("F"): "FLOAT", ord("S"): "STRING", ord("V"): "UNICODE",
    ord("p"): "PUT", ord("g"): "GET", 0x97: "NEXT_BUFFER", 0x98: "READONLY_BUFFER",
}  # fmt: skip
"""Instructions of pickle that are not here: they call, or belong to the text protocol."""
