"""The table in use against what the running Python says of its own instructions."""

from __future__ import annotations

import dis
from types import CodeType
from typing import Any

from lucerne._src.capture.bytecode import Machine, Plain, PythonFrame, Stop, current_table
from lucerne._src.capture.bytecode.decode import MAGIC, VERSION
from tests.capture_bytecode.table import CASES
from tools.instruction_set import described
from tools.instructions import changes, problems

_OTHERWISE = {"3.11": ("PRECALL", "CALL", "RETURN_GENERATOR"), "3.12": ("RETURN_GENERATOR",)}
"""What is the same in the end, but said otherwise: that PRECALL takes the arguments of CALL away,
and that what a generator is sent first comes from nowhere."""


def test_the_table_fits_this_python() -> None:
    table = current_table()
    assert table is not None
    assert table.magic == MAGIC
    assert problems(described()) == []


def test_what_does_not_fit_is_told() -> None:
    known = described()
    new = {**known, "FLY": {"argument": "number", "effect": [1]}}
    del new["POP_TOP"]
    assert problems(new) == [
        "FLY has no rule",
        "POP_TOP has a rule, but this Python has no such instruction",
    ]
    new["SWAP"] = {"argument": "jump", "effect": [0]}
    assert changes(known, new)[:2] == ["new      FLY (number; 1)", "gone     POP_TOP"]
    assert changes(known, new)[2].startswith("changed  SWAP (number; 0 0")
    assert "SWAP: jump, its rule says number" in problems(new)


class Heights:
    """Compares the height of the stack after each instruction with what Python says it is."""

    def __init__(self) -> None:
        self.last: dict[int, tuple[PythonFrame, int, int]] = {}
        self.known: dict[CodeType, list[dis.Instruction]] = {}
        self.wrong: set[str] = set()
        self.looked = 0

    def before(self, frame: PythonFrame) -> Stop | None:
        found = self.last.get(id(frame))
        handles = any(region.target == frame.ip for region in frame.decoded.regions)
        if found is not None and frame.ip == found[1] + 1 and not handles:
            self._look(frame, found[1], len(frame.stack) - found[2])
        self.last[id(frame)] = frame, frame.ip, len(frame.stack)
        return None

    def _look(self, frame: PythonFrame, at: int, grown: int) -> None:
        code = frame.code
        if code not in self.known:
            skipped = ("CACHE", "EXTENDED_ARG")
            listed = dis.get_instructions(code)
            self.known[code] = [i for i in listed if i.opname not in skipped]
        one = self.known[code][at]
        if one.opname in _OTHERWISE.get(VERSION, ()):
            return
        want = dis.stack_effect(one.opcode, one.arg, jump=False)
        self.looked += 1
        if want != grown:
            self.wrong.add(f"{one.opname} {one.arg}: {grown}, Python says {want}")


def test_the_stack_is_as_high_as_python_says() -> None:
    heights = Heights()
    for one in CASES:
        if one.name == "recursion_error":
            continue
        one.reset()
        hooks: Any = Plain()
        machine = Machine(hooks)
        machine.before = heights.before
        heights.last.clear()
        try:
            machine.run([machine.frame_of(one.fn, one.make_args())])
        except Exception:
            continue  # many do
        finally:
            one.reset()
    assert not heights.wrong
    assert heights.looked > 10_000
