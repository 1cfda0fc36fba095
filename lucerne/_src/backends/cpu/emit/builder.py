"""A small typed builder of LLVM IR text, with structured control flow.

    m = Module()
    with m.function("scale", [("x", PTR), ("n", I64)]) as f:
        x, n = f.args
        with f.loop(0, n, 16) as loop:
            place = f.at(x, loop.index, F32)
            f.store(f.load(F32.vector(16), place) * 2.0, place)
    m.text()

Values are SSA. Loops carry values (`loop.carried`, `loop.next(...)`, `loop.results`), branches give
values (`branch.give(...)`, `branch.results`), so kernels need no memory for their variables and no
optimisation passes. Integer arithmetic on constants is folded here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.cpu.emit.flow import Branch, Loop, While
from lucerne._src.backends.cpu.emit.target import HOST
from lucerne._src.backends.cpu.emit.types import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I32,
    I64,
    PTR,
    VOID,
    Type,
)
from lucerne._src.backends.cpu.emit.values import LLVMValue, Number, float_literal
from lucerne._src.ir.scalar.protocol import COMPARISONS

_INT_OPS = {"add": "add", "sub": "sub", "mul": "mul", "div": "sdiv", "rem": "srem"}
_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "rem": "frem"}
_FOLD = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
}

_NAME = re.compile(r"@([A-Za-z_][\w.]*)")
_HEAD = re.compile(r"^define (?!internal )")


class Module:
    """Functions, globals and declarations: the text of one LLVM module."""

    def __init__(self) -> None:
        self._declared: dict[str, str] = {}
        self._globals: dict[str, str] = {}
        self._bodies: list[str] = []
        self._defined: set[str] = set()
        self._outside: list[str] = []
        self.exports: list[str] = []
        self.optimize = False
        """Whether LLVM's passes (inlining above all) run over the module."""

    def function(
        self,
        name: str,
        params: Sequence[tuple[str, Type] | tuple[str, Type, str]],
        returns: Type = VOID,
        *,
        internal: bool = False,
        attributes: str = "nounwind",
    ) -> LLVMFunction:
        """A function to fill inside `with`. A third item of a parameter is LLVM attributes
        ("noalias"). Functions that aren't internal are the module's exports."""
        if name in self._defined:
            raise ValueError(f"function {name!r} is defined twice in one module")
        self._defined.add(name)
        self._declared.pop(name, None)
        self._is_inside(name)
        if not internal:
            self.exports.append(name)
        return LLVMFunction(self, name, params, returns, internal, attributes)

    def has(self, name: str) -> bool:
        """Whether the module defines this function already (shared helpers ask)."""
        return name in self._defined

    def declare(
        self, name: str, returns: Type, params: Sequence[Type], *, more: bool = False
    ) -> None:
        """An external function (an intrinsic, or a symbol the loader binds). `more`: variadic."""
        if name not in self._defined:
            listed = [p.text for p in params] + (["..."] if more else [])
            self._declared[name] = f"declare {returns.text} @{name}({', '.join(listed)})"

    def external(self, name: str) -> None:
        """An external variable, or a function used by its address alone."""
        if name not in self._globals:
            self._globals[name] = f"@{name} = external global i8"
            self._outside.append(name)

    def variable(
        self,
        name: str,
        type: str,
        value: str = "zeroinitializer",
        align: int = 8,
        *,
        shown: bool = False,
    ) -> str:
        """A module variable; `type` and `value` as LLVM text. Returns its name with the @."""
        link = "" if shown else "internal "
        self._is_inside(name)
        self._globals[name] = f"@{name} = {link}global {type} {value}, align {align}"
        if shown:
            self.exports.append(name)
        return f"@{name}"

    def constant(self, name: str, type: str, value: str, align: int = 64) -> str:
        """Read-only data."""
        self._is_inside(name)
        self._globals[name] = f"@{name} = internal constant {type} {value}, align {align}"
        return f"@{name}"

    def _is_inside(self, name: str) -> None:
        """What named it before it was defined took it for external."""
        if name in self._outside:
            self._outside.remove(name)
            del self._globals[name]

    def hidden(self, name: str) -> None:
        """An external variable that is linked in, and that nobody else sees."""
        self._globals[name] = f"@{name} = external hidden global i8"
        self._outside.append(name)

    def alias(self, name: str, target: str, offset: int) -> None:
        """Another name for a place in a variable, for whoever names it as external."""
        self._is_inside(name)
        place = f"getelementptr (i8, ptr @{target}, i64 {offset})"
        self._globals[name] = f"@{name} = internal alias i8, {place}"

    def adopt(self, other: Module, prefix: str, keep: frozenset[str] = frozenset()) -> None:
        """Take in another module, all of it internal. Its names get `prefix`, so that none meets
        one of ours, but for those in `keep`, which ours call."""
        outside = {*other._outside}
        own = (other._defined | other._globals.keys()) - outside - keep

        def renamed(text: str) -> str:
            return _NAME.sub(lambda x: f"@{prefix}{x[1]}" if x[1] in own else x[0], text)

        for name in other._defined:
            made = prefix + name if name in own else name
            self._defined.add(made)
            self._declared.pop(made, None)
            self._is_inside(made)
        for name, line in other._globals.items():
            if name not in outside:
                line = renamed(line).replace(" = global ", " = internal global ", 1)
                self._globals[prefix + name if name in own else name] = line
            elif name not in self._defined:
                self.external(name)
        new = {n: line for n, line in other._declared.items() if n not in self._defined}
        self._declared |= new
        self._bodies += [_HEAD.sub("define internal ", renamed(b), count=1) for b in other._bodies]

    def imports(self) -> list[str]:
        """Names of the external functions and variables, which the loader binds."""
        functions = [name for name in self._declared if not name.startswith("llvm.")]
        return functions + self._outside

    def text(self) -> str:
        lines = [*self._declared.values(), *self._globals.values(), *self._bodies]
        if any("!nontemporal" in b for b in self._bodies):
            lines.append("!0 = !{i32 1}")
        return "\n".join(lines) + "\n"

    def add_body(self, text: str) -> None:
        self._bodies.append(text)


class LLVMFunction:
    """One function being written. Enter it with `with`; leaving closes it."""

    def __init__(
        self,
        module: Module,
        name: str,
        params: Sequence[Any],
        returns: Type,
        internal: bool,
        attributes: str,
    ) -> None:
        self.module, self.name, self.returns = module, name, returns
        self._lines: list[str] = []
        self._count = 0
        self.block = "entry"
        self._ended = False
        listed = [f"{p[1].text} {p[2] + ' ' if len(p) > 2 else ''}%{p[0]}" for p in params]
        link = "internal " if internal else ""
        self._head = f"define {link}{returns.text} @{name}({', '.join(listed)}) {attributes} {{"
        self.args = [LLVMValue(self, p[1], f"%{p[0]}") for p in params]

    def __enter__(self) -> LLVMFunction:
        self._lines.append("entry:")
        return self

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is not None:
            return
        if not self._ended:
            if self.returns is not VOID:
                raise ValueError(f"function {self.name!r} ends without returning a value")
            self.ret()
        self.module.add_body("\n".join([self._head, *self._lines, "}"]))

    # ---- text --------------------------------------------------------------------------------

    def fresh(self, prefix: str = "v") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def emit(self, text: str) -> None:
        """One instruction without a result."""
        self._lines.append("  " + text)

    def value(self, type: Type, text: str) -> LLVMValue:
        """One instruction with a result of this type."""
        name = f"%{self.fresh()}"
        self._lines.append(f"  {name} = {text}")
        return LLVMValue(self, type, name)

    def label(self, name: str) -> None:
        self._lines.append(f"{name}:")
        self.block = name
        self._ended = False

    def jump(self, label: str) -> None:
        if not self._ended:
            self.emit(f"br label %{label}")

    def branch(self, condition: LLVMValue, yes: str, no: str) -> None:
        self.emit(f"br i1 {condition.text}, label %{yes}, label %{no}")

    def ret(self, value: LLVMValue | Number | None = None) -> None:
        """Return; code after it in the same block is not allowed."""
        if value is None:
            self.emit("ret void")
        else:
            v = self.constant(value, self.returns)
            self.emit(f"ret {v.type.text} {v.text}")
        self._ended = True

    # ---- constants ---------------------------------------------------------------------------

    def constant(self, x: Any, type: Type = I64) -> LLVMValue:
        """A Python number as a value of `type` (a splat for vectors); values pass unchanged."""
        if isinstance(x, LLVMValue):
            return x
        if type.is_float:
            text, literal = float_literal(float(x), type), None
        elif type is PTR:
            if x != 0:
                raise TypeError(
                    "an address in the text of a kernel would be wrong in the next process: pass "
                    "it in the block, or provide it as a symbol"
                )
            text, literal = "null", None
        else:
            literal = int(x)
            text = ("true" if literal & 1 else "false") if type.element is I1 else str(literal)
        if type.lanes:
            return LLVMValue(self, type, f"splat ({type.name} {text})")
        return LLVMValue(self, type, text, literal)

    def undefined(self, type: Type) -> LLVMValue:
        return LLVMValue(self, type, "poison")

    def zero(self, type: Type) -> LLVMValue:
        return (
            LLVMValue(self, type, "null" if type is PTR else "zeroinitializer")
            if (type.lanes or type is PTR)
            else self.constant(0, type)
        )

    def symbol(self, name: str) -> LLVMValue:
        """The address of a function or variable, defined here or external."""
        m = self.module
        if not m.has(name) and name not in m._globals and name not in m._declared:
            m.external(name)
        return LLVMValue(self, PTR, f"@{name}")

    def lanes(self, type: Type) -> LLVMValue:
        """The vector 0, 1, 2, ... of an integer vector type."""
        items = ", ".join(f"{type.name} {i}" for i in range(type.lanes))
        return LLVMValue(self, type, f"<{items}>")

    # ---- arithmetic --------------------------------------------------------------------------

    def _pair(self, a: Any, b: Any) -> tuple[LLVMValue, LLVMValue]:
        type = a.type if isinstance(a, LLVMValue) else b.type
        a, b = self.constant(a, type), self.constant(b, type)
        if a.type is not b.type:
            raise TypeError(f"operands of different types: {a!r} and {b!r}")
        return a, b

    def arithmetic(self, op: str, a: Any, b: Any, flags: str = "") -> LLVMValue:
        """add, sub, mul, div, rem; integers signed. `flags`: LLVM's, as "contract"."""
        a, b = self._pair(a, b)
        if a.type.is_float:
            return self.value(
                a.type,
                f"{_FLOAT_OPS[op]} {flags + ' ' if flags else ''}{a.type.text} {a.text}, {b.text}",
            )
        x, y = a.literal, b.literal
        if x is not None and y is not None and op in _FOLD:
            return self.constant(_FOLD[op](x, y), a.type)
        if (y == 0 and op in ("add", "sub")) or (y == 1 and op in ("mul", "div")):
            return a
        if (x == 0 and op == "add") or (x == 1 and op == "mul"):
            return b
        return self.value(a.type, f"{_INT_OPS[op]} {a.type.text} {a.text}, {b.text}")

    def unsigned(self, op: str, a: Any, b: Any) -> LLVMValue:
        """udiv or urem ("div", "rem")."""
        a, b = self._pair(a, b)
        return self.value(a.type, f"u{op} {a.type.text} {a.text}, {b.text}")

    def bits(self, op: str, a: Any, b: Any) -> LLVMValue:
        """and, or, xor, shl, ashr, lshr."""
        a, b = self._pair(a, b)
        return self.value(a.type, f"{op} {a.type.text} {a.text}, {b.text}")

    def neg(self, a: LLVMValue) -> LLVMValue:
        if a.type.is_float:
            return self.value(a.type, f"fneg {a.type.text} {a.text}")
        return 0 - a

    def fma(self, a: Any, b: Any, c: Any) -> LLVMValue:
        """`a * b + c` rounded once.

        Where no instruction does it, float32 takes a detour by float64, in which the product is
        exact: what is exact in float32 stays so, and a last bit may differ where the sum in float64
        lay half-way between two float32. (LLVM calls the C library once for each lane.)
        """
        a, b, c = self._alike(a, b, c)
        if HOST.has_fma or a.type.element is not F32:
            return self.intrinsic("llvm.fma", a.type, [a, b, c])
        wide = F64.vector(a.type.lanes)
        x, y, z = (self.convert("fpext", v, wide) for v in (a, b, c))
        return self.convert("fptrunc", x * y + z, a.type)

    def mul_add(self, a: Any, b: Any, c: Any) -> LLVMValue:
        """`a * b + c` for sums that may round twice: `fma` where that is one instruction."""
        a, b, c = self._alike(a, b, c)
        return self.fma(a, b, c) if HOST.has_fma else a * b + c

    def _alike(self, *values: Any) -> list[LLVMValue]:
        """Numbers as constants of the type that the others have."""
        type = next(x.type for x in values if isinstance(x, LLVMValue))
        return [self.constant(x, type) for x in values]

    def compare(self, how: str, a: Any, b: Any) -> LLVMValue:
        """lt le gt ge eq ne, signed or ordered (ne: unordered, as in C); or an LLVM predicate."""
        a, b = self._pair(a, b)
        if a.type.is_float:
            how = {"ne": "une"}.get(how, "o" + how if how in COMPARISONS else how)
            word = "fcmp"
        else:
            how = "s" + how if how in ("lt", "le", "gt", "ge") else how
            word = "icmp"
        return self.value(I1.vector(a.type.lanes), f"{word} {how} {a.type.text} {a.text}, {b.text}")

    def select(self, condition: LLVMValue, a: Any, b: Any) -> LLVMValue:
        a, b = self._pair(a, b)
        return self.value(a.type, f"select {condition!r}, {a!r}, {b!r}")

    def minimum(self, a: Any, b: Any) -> LLVMValue:
        """Of integers, signed; of floats `a < b ? a : b` (one instruction; b when unordered)."""
        return (
            self.select(self.compare("lt", a, b), a, b)
            if not _both_literal(a, b)
            else self.constant(
                min(a.literal, b.literal) if isinstance(b, LLVMValue) else min(a.literal, b)
            )
        )

    def maximum(self, a: Any, b: Any) -> LLVMValue:
        return self.select(self.compare("gt", a, b), a, b)

    def ceil_div(self, a: Any, b: Any) -> LLVMValue:
        """Of non-negative integers."""
        a, b = self._pair(a, b)
        return (a + (b - 1)) // b

    # ---- conversions -------------------------------------------------------------------------

    def convert(self, how: str, v: LLVMValue, type: Type) -> LLVMValue:
        """An LLVM cast: zext sext trunc fpext fptrunc sitofp uitofp fptosi fptoui bitcast
        ptrtoint inttoptr. Lanes of `type` follow the value when it is given as a scalar type."""
        if how != "bitcast" and not type.lanes and v.type.lanes:
            type = type.vector(v.type.lanes)
        if v.type is type:
            return v
        return self.value(type, f"{how} {v.type.text} {v.text} to {type.text}")

    def bitcast(self, v: LLVMValue, type: Type) -> LLVMValue:
        return self.convert("bitcast", v, type)

    # ---- memory ------------------------------------------------------------------------------

    def at(self, pointer: LLVMValue, index: Any, type: Type = I8) -> LLVMValue:
        """`pointer` advanced by `index` elements of `type` (bytes unless told)."""
        index = self.constant(index)
        if index.literal == 0:
            return pointer
        return self.value(
            PTR, f"getelementptr {type.element.text}, ptr {pointer.text}, i64 {index.text}"
        )

    def load(
        self, type: Type, pointer: LLVMValue, align: int | None = None, extra: str = ""
    ) -> LLVMValue:
        return self.value(
            type, f"load {type.text}, ptr {pointer.text}, align {align or type.size}{extra}"
        )

    def store(
        self, v: LLVMValue, pointer: LLVMValue, align: int | None = None, *, stream: bool = False
    ) -> None:
        """`stream`: non-temporal, for results beyond the cache (needs the full alignment)."""
        extra = ", !nontemporal !0" if stream else ""
        self.emit(
            f"store {v.type.text} {v.text}, ptr {pointer.text}, align {align or v.type.size}{extra}"
        )

    def stack(self, nbytes: int, align: int = 64) -> LLVMValue:
        """Bytes on the stack. Only in the entry block, outside loops."""
        return self.value(PTR, f"alloca [{nbytes} x i8], align {align}")

    def word(self, block: LLVMValue, index: int, type: Type = I64) -> LLVMValue:
        """Word number `index` of a block of 8-byte words: how kernels read their arguments."""
        return self.load(type, self.at(block, index * 8), align=8 if type.bits == 64 else None)

    def copy_bytes(self, target: LLVMValue, source: LLVMValue, nbytes: Any) -> None:
        self.call(
            "llvm.memcpy.p0.p0.i64",
            VOID,
            [target, source, self.constant(nbytes), self.constant(0, I1)],
        )

    def fill_bytes(self, target: LLVMValue, byte: Any, nbytes: Any) -> None:
        self.call(
            "llvm.memset.p0.i64",
            VOID,
            [target, self.constant(byte, I8), self.constant(nbytes), self.constant(0, I1)],
        )

    def prefetch(self, pointer: LLVMValue, locality: int = 3, *, write: bool = False) -> None:
        """Locality 3: into the first cache, 2: the second, ..."""
        self.call(
            "llvm.prefetch.p0",
            VOID,
            [
                pointer,
                self.constant(int(write), I32),
                self.constant(locality, I32),
                self.constant(1, I32),
            ],
        )

    # ---- atomics -----------------------------------------------------------------------------

    def atomic_load(self, type: Type, pointer: LLVMValue, order: str = "acquire") -> LLVMValue:
        return self.value(
            type, f"load atomic {type.text}, ptr {pointer.text} {order}, align {type.size}"
        )

    def atomic_store(self, v: LLVMValue, pointer: LLVMValue, order: str = "release") -> None:
        self.emit(
            f"store atomic {v.type.text} {v.text}, ptr {pointer.text} {order}, align {v.type.size}"
        )

    def atomic(
        self, op: str, pointer: LLVMValue, v: Any, type: Type = I64, order: str = "seq_cst"
    ) -> LLVMValue:
        """add, sub, xchg, max, min, or, and: the value before."""
        v = self.constant(v, type)
        return self.value(type, f"atomicrmw {op} ptr {pointer.text}, {type.text} {v.text} {order}")

    def compare_exchange(
        self, pointer: LLVMValue, old: LLVMValue, new: Any, order: str = "acq_rel acquire"
    ) -> tuple[LLVMValue, LLVMValue]:
        """(the value that was there, whether it was exchanged)."""
        new = self.constant(new, old.type)
        pair = f"{{ {old.type.text}, i1 }}"
        name = f"%{self.fresh()}"
        self.emit(f"{name} = cmpxchg ptr {pointer.text}, {old!r}, {new!r} {order}")
        return (
            self.value(old.type, f"extractvalue {pair} {name}, 0"),
            self.value(I1, f"extractvalue {pair} {name}, 1"),
        )

    # ---- calls -------------------------------------------------------------------------------

    def call(
        self, name: str, returns: Type, args: Sequence[Any], *, more_after: int | None = None
    ) -> LLVMValue:
        """Call a function by name: defined here, an intrinsic, or external. `more_after`: the C
        function is variadic after so many parameters."""
        values = [self.constant(a) for a in args]
        fixed = values if more_after is None else values[:more_after]
        self.module.declare(name, returns, [v.type for v in fixed], more=more_after is not None)
        listed = ", ".join(f"{v.type.text} {v.text}" for v in values)
        signature = ""
        if more_after is not None:
            signature = f" ({', '.join(v.type.text for v in fixed)}, ...)"
        text = f"call {returns.text}{signature} @{name}({listed})"
        if returns is VOID:
            self.emit(text)
            return LLVMValue(self, VOID, "")
        return self.value(returns, text)

    def call_at(self, pointer: LLVMValue, returns: Type, args: Sequence[Any]) -> LLVMValue:
        """Call through a function pointer."""
        listed = ", ".join(f"{v.type.text} {v.text}" for v in (self.constant(a) for a in args))
        text = f"call {returns.text} {pointer.text}({listed})"
        if returns is VOID:
            self.emit(text)
            return LLVMValue(self, VOID, "")
        return self.value(returns, text)

    def intrinsic(
        self, name: str, returns: Type, args: Sequence[Any], suffix: str | None = None
    ) -> LLVMValue:
        """An overloaded intrinsic; its suffix follows the result type unless told."""
        values = [self.constant(a, returns) for a in args]
        return self.call(f"{name}.{returns.suffix if suffix is None else suffix}", returns, values)

    # ---- vectors -----------------------------------------------------------------------------

    def splat(self, v: Any, lanes: int, type: Type | None = None) -> LLVMValue:
        """A scalar in every lane."""
        if not isinstance(v, LLVMValue):
            assert type is not None
            return self.constant(v, type.vector(lanes))
        if lanes <= 1:
            return v
        wide = v.type.vector(lanes)
        one = self.value(wide, f"insertelement {wide.text} poison, {v.type.text} {v.text}, i32 0")
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self.value(wide, f"shufflevector {one!r}, {wide.text} poison, {zeros}")

    def shuffle(self, a: LLVMValue, b: LLVMValue | None, mask: Sequence[int]) -> LLVMValue:
        """Lanes picked from `a` then `b` (numbered on)."""
        other = "poison" if b is None else b.text
        picked = ", ".join(f"i32 {k}" for k in mask)
        return self.value(
            a.type.vector(len(mask)),
            f"shufflevector {a!r}, {a.type.text} {other}, <{len(mask)} x i32> <{picked}>",
        )

    def extract(self, v: LLVMValue, lane: Any) -> LLVMValue:
        lane = self.constant(lane, I32)
        return self.value(
            v.type.element, f"extractelement {v.type.text} {v.text}, {lane.type.text} {lane.text}"
        )

    def insert(self, v: LLVMValue, x: LLVMValue, lane: Any) -> LLVMValue:
        lane = self.constant(lane, I32)
        return self.value(v.type, f"insertelement {v!r}, {x!r}, {lane!r}")

    def low_mask(self, count: Any, lanes: int) -> LLVMValue:
        """The first `count` lanes on (an i64; any value: clamped to 0..lanes)."""
        count = self.constant(count)
        wide = I32.vector(lanes)
        kept = self.maximum(self.minimum(count, lanes), 0)
        n = self.splat(self.convert("trunc", kept, I32), lanes)
        return self.compare("lt", self.lanes(wide), n)

    def masked_load(self, type: Type, pointer: LLVMValue, mask: LLVMValue) -> LLVMValue:
        """Lanes that are off read nothing and hold zero."""
        return self.call(
            f"llvm.masked.load.{type.suffix}.p0",
            type,
            [pointer, self.constant(type.size, I32), mask, self.zero(type)],
        )

    def masked_store(self, v: LLVMValue, pointer: LLVMValue, mask: LLVMValue) -> None:
        self.call(
            f"llvm.masked.store.{v.type.suffix}.p0",
            VOID,
            [v, pointer, self.constant(v.type.size, I32), mask],
        )

    def fold(self, op: str, v: LLVMValue) -> LLVMValue:
        """Fold the lanes: add mul (floats pairwise), and or xor smax smin umax umin fmax fmin."""
        element = v.type.element
        if element.is_float and op in ("add", "mul"):
            return self._fold_halves(op, v)
        return self.call(f"llvm.vector.reduce.{op}.{v.type.suffix}", element, [v])

    def _fold_halves(self, op: str, v: LLVMValue) -> LLVMValue:
        """A fixed tree: upper half onto lower half until one lane is left."""
        while v.type.lanes > 1:
            half = v.type.lanes // 2
            low, high = (
                self.shuffle(v, None, range(half)),
                self.shuffle(v, None, range(half, 2 * half)),
            )
            if half == 1:
                return self.arithmetic(op, self.extract(v, 0), self.extract(v, 1))
            v = self.arithmetic(op, low, high)
        return v

    # ---- control -----------------------------------------------------------------------------

    def loop(
        self,
        start: Any,
        stop: Any,
        step: Any = 1,
        carry: Sequence[LLVMValue] = (),
        *,
        at_least_once: bool = False,
    ) -> Loop:
        """`for index in range(start, stop, step)` with loop-carried values; step positive."""
        return Loop(
            self,
            self.constant(start),
            self.constant(stop),
            self.constant(step),
            list(carry),
            at_least_once,
        )

    def while_(self, carry: Sequence[LLVMValue]) -> While:
        """Loop until `again(condition, ...)` is given a false condition."""
        return While(self, list(carry))

    def if_(self, condition: LLVMValue) -> Branch:
        """`with f.if_(c) as b: b.give(x)`, then `with b.else_(): b.give(y)`, then `b.results`."""
        return Branch(self, condition)

    def reserve(self) -> int:
        """A line to be filled in later (a phi whose sources aren't known yet)."""
        self._lines.append("")
        return len(self._lines) - 1

    def fill(self, line: int, text: str) -> None:
        self._lines[line] = "  " + text


def _both_literal(a: Any, b: Any) -> bool:
    first = a.literal if isinstance(a, LLVMValue) else None
    second = b.literal if isinstance(b, LLVMValue) else (b if isinstance(b, int) else None)
    return first is not None and second is not None and isinstance(a, LLVMValue) and a.type is I64


__all__ = [
    "BF16",
    "F16",
    "F32",
    "F64",
    "I1",
    "I8",
    "I32",
    "I64",
    "PTR",
    "VOID",
    "LLVMFunction",
    "LLVMValue",
    "Module",
    "Type",
]
