"""A compiled program by its text: what devices send each other, products, bytes that move.

XLA tells the same of some platforms only (`cost_analysis`), and of no collective; the text is there
for all. It is that of one device of many: sizes are those of its part.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lucerne._src.backends.contract.planned import Collective

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_WIDTHS = {"pred": 1, "s4": 1, "u4": 1, "bf16": 2, "c64": 8, "c128": 16}
_COMMENT = re.compile(r"/\*.*?\*/")
_LEAF = re.compile(r"([a-z]\w*)\[([\d,<=]*)\]")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{$")
_NAME = re.compile(r"^\s+(?:ROOT )?%?([\w.$-]+) = ")
_CALLS = re.compile(r"\b(calls|body|to_apply|branch_computations)=\{?((?:%?[\w.-]+(?:, )?)+)\}?")
_TURNS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_SCOPE = re.compile(r'op_name="[^"]*?\{([^}"]*)\}')
_INSIDE = ("fusion", "call", "while", "conditional", "async-start")
"""Instructions whose computations run as often as they do (`while`: so many times)."""
_NO_BYTES = frozenset({
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call",
    "conditional", "after-all", "partition-id", "replica-id", "opt-barrier", "async-start",
    "domain",
})  # fmt: skip
_PART_ONLY = ("dynamic-slice", "gather", "slice")

Shape = tuple[str, tuple[int, ...]]


class Instruction(NamedTuple):
    """One line."""

    name: str
    shapes: list[Shape]
    """Of the result: more than one if it is a tuple."""
    opcode: str
    operands: str
    attributes: str


@dataclass
class Computation:
    """A function of the program."""

    lines: dict[str, Instruction] = field(default_factory=dict)
    times: int = 0
    """How often it runs in one call of the program, as far as that is known."""

    def operand(self, line: Instruction, k: int) -> list[Shape]:
        """The shapes of an operand."""
        words = _operands(line.operands)
        if k >= len(words):
            return []
        here = self.lines.get(words[k].split()[-1].lstrip("%"))
        return here.shapes if here is not None else _shapes(words[k])


def _shapes(text: str) -> list[Shape]:
    return [
        (kind, tuple(int(n.lstrip("<=")) for n in sizes.split(",") if n))
        for kind, sizes in _LEAF.findall(text)
    ]


def _nbytes(shapes: Sequence[Shape]) -> int:
    return sum(_width(kind) * math.prod(sizes) for kind, sizes in shapes)


def _width(kind: str) -> int:
    found = _WIDTHS.get(kind)
    if found is None:
        bits = re.search(r"\d+", kind)  # (f32, s64, f8e4m3fn)
        found = int(bits[0]) // 8 if bits else 0
    return found


def _operands(text: str) -> list[str]:
    """What stands between the commas that no bracket holds."""
    found, depth, start = [], 0, 0
    for k, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and not depth:
            found.append(text[start:k].strip())
            start = k + 1
    return [*found, text[start:].strip()] if text.strip() else []


def _end(text: str, start: int, stops: str) -> int:
    """Where one of `stops` stands that no bracket holds."""
    depth = 0
    for k in range(start, len(text)):
        sign = text[k]
        if not depth and sign in stops:
            return k
        depth += (sign in "([{") - (sign in ")]}")
    return len(text)


def instruction(line: str) -> Instruction | None:
    """A line of a program; None: it is none."""
    head = _NAME.match(line)
    if head is None:
        return None
    line = _COMMENT.sub("", line)
    gap = _end(line, head.end(), " ")
    opens = line.find("(", gap)
    if opens < 0:
        return None
    closes = _end(line, opens + 1, ")")
    shapes, opcode = _shapes(line[head.end() : gap]), line[gap:opens].strip()
    return Instruction(head[1], shapes, opcode, line[opens + 1 : closes], line[closes + 1 :])


def computations(text: str) -> dict[str, Computation]:
    """All functions of a program, and how often each runs."""
    found: dict[str, Computation] = {}
    now, entry = Computation(), ""
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head is not None:
            now = found[head[2]] = Computation()
            entry = head[2] if head[1] else entry
            continue
        made = instruction(line)
        if made is not None:
            now.lines[made.name] = made
    if not found:  # (lines alone)
        found[""] = now
    _count(found, entry or next(iter(found)), 1)
    return found


def _count(found: dict[str, Computation], name: str, times: int) -> None:
    here = found.get(name)
    if here is None:
        return
    here.times += times
    for line in here.lines.values():
        if line.opcode in _INSIDE:
            turns = _TURNS.search(line.attributes)
            inner = times * int(turns[1]) if turns and line.opcode == "while" else times
            for _, names in _CALLS.findall(line.attributes):
                for other in names.split(", "):
                    _count(found, other.lstrip("%"), inner)


def _lines(text: str) -> Iterator[tuple[Computation, Instruction]]:
    for part in computations(text).values():
        if part.times:
            for line in part.lines.values():
                yield part, line


# ---- collectives ---------------------------------------------------------------------------------


def collectives(text: str) -> list[Collective]:
    """What devices send each other, in the order of the text."""
    found = []
    for part, line in _lines(text):
        kind = line.opcode.removesuffix("-start")
        if kind in KINDS:
            pairs = _pairs(line.attributes)
            group = _group(line.attributes)
            nbytes = _moved(kind, line, max(len(group), 1))
            where, op = _where(line)
            found.append(
                Collective(kind, nbytes, group, part.times, where, pairs=tuple(pairs), op=op)
            )
    return found


def _moved(kind: str, line: Instruction, members: int) -> int:
    """Bytes of the whole: of the parts of one group together, unless each device has its own."""
    if line.opcode.endswith("-start") and kind != "all-reduce":
        # (what goes in and what comes out; scalars beside them are the runtime's)
        sides = [s for s in line.shapes if s[1] or s[0] != "u32"]
        half = len(sides) // 2
        if half:
            return max(_nbytes(sides[:half]), _nbytes(sides[half:]))
    return _nbytes(line.shapes) * (members if kind == "reduce-scatter" else 1)


def _where(line: Instruction) -> tuple[str, str]:
    """The user's line, and the op."""
    found = _SCOPE.search(line.attributes)
    where, _, op = found[1].partition("|") if found else ("", "", "")
    return where, op


def _pairs(attributes: str) -> list[tuple[int, int]]:
    found = re.search(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}", attributes)
    if found is None:
        return []
    return [(int(a), int(b)) for a, b in re.findall(r"\{(\d+),(\d+)\}", found[1])]


def _group(attributes: str) -> tuple[int, ...]:
    """The first of the groups, which are alike; empty: all devices are one."""
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", attributes)
    if listed is not None:
        return tuple(int(k) for k in listed[1].split(","))
    counted = re.search(
        r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", attributes
    )
    if counted is not None:
        sizes = [int(n) for n in counted[3].split(",")]
        order = [int(d) for d in counted[4].split(",")] if counted[4] else list(range(len(sizes)))
        return _first(sizes, order, int(counted[2]))
    named = re.search(r"replica_groups=@?\w*mesh\[([^\]]*)\][^{]*\{([^}]*)\}", attributes)
    if named is not None:
        return _along(named[1], named[2])
    return ()


def _along(sizes: str, along: str) -> tuple[int, ...]:
    """A group by the names of axes of a grid: `'a'=4,'b'=8` and `'a'`, or a part of one, `'b':(2)4`
    (as many as 4, after the first 2)."""
    axes = [(name, int(n)) for name, n in re.findall(r"['\"]([^'\"]+)['\"]=(\d+)", sizes)]
    wanted = re.findall(r"['\"]([^'\"]+)['\"](?::\((\d+)\)(\d+))?", along)
    split: list[tuple[str, int, int]] = []
    for name, n in axes:
        cuts = [(int(a or 1), int(b or n)) for other, a, b in wanted if other == name]
        before = 1
        for start, size in sorted(cuts):
            split += [(name, before, start // before)] if start > before else []
            split.append((name, start, size))
            before = start * size
        if before < n or not cuts:
            split.append((name, before, n // before))
    keys = [(name, int(a or 1)) for name, a, _ in wanted]
    picked = [k for key in keys for k, part in enumerate(split) if part[:2] == key]
    rest = [k for k in range(len(split)) if k not in picked]
    lengths = [part[2] for part in split]
    return _first(lengths, [*rest, *picked], math.prod(lengths[k] for k in picked))


def _first(sizes: list[int], order: list[int], count: int) -> tuple[int, ...]:
    """The first numbers of a grid of all, read with its dimensions in another order."""
    steps = [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]
    found = []
    for k in range(count):
        number = 0
        for d in reversed(order):
            k, at = divmod(k, sizes[d])
            number += at * steps[d]
        found.append(number)
    return tuple(found)


# ---- arithmetic and memory -----------------------------------------------------------------------


def product_flops(text: str) -> int:
    """Multiplications and additions of products and convolutions, on one device."""
    return sum(part.times * _flops(part, line) for part, line in _lines(text))


def _flops(part: Computation, line: Instruction) -> int:
    if not line.shapes:
        return 0
    made = math.prod(line.shapes[0][1])
    if line.opcode == "dot" or "$gemm" in line.attributes or "$matmul" in line.attributes:
        dims = re.search(r"lhs_contracting_dim\w*\"?[=:][\[{]([\d,\"]*)[\]}]", line.attributes)
        left = part.operand(line, 0)
        if dims is None or not left:
            return 0
        sizes = left[0][1]
        return 2 * made * math.prod(sizes[int(d)] for d in dims[1].replace('"', "").split(",") if d)
    labels = re.search(r"dim_labels=\w+_(\w+)->", line.attributes)
    right = part.operand(line, 1) if labels else []
    if labels is None or not right:
        return 0
    out = right[0][1][labels[1].index("o")]
    return 2 * made * math.prod(right[0][1]) // max(out, 1)


def moved_bytes(text: str) -> int:
    """Bytes that kernels read from memory and write to it, each operand once."""
    found = 0
    parts = computations(text)
    fused = {
        name.lstrip("%")
        for part in parts.values()
        for line in part.lines.values()
        if line.opcode == "fusion"
        for _, names in _CALLS.findall(line.attributes)
        for name in names.split(", ")
    }
    for name, part in parts.items():
        if part.times and name not in fused:
            found += part.times * sum(_traffic(part, line) for line in part.lines.values())
    return found


def _traffic(part: Computation, line: Instruction) -> int:
    if line.opcode in _NO_BYTES or line.opcode.endswith("-done"):
        return 0
    if line.opcode.removesuffix("-start") in KINDS:
        return 0  # (the wire is slower)
    made = _nbytes(line.shapes)
    if line.opcode in _PART_ONLY:
        return 2 * made
    if line.opcode == "dynamic-update-slice":
        return 2 * _nbytes(part.operand(line, 1))
    count = len(_operands(line.operands))
    return made + sum(_nbytes(part.operand(line, k)) for k in range(count))
