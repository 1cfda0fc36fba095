"""One running function of the machine, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import Any

from lucerne._src.base.process.source_location import Place
from lucerne._src.base.raw import is_a
from lucerne._src.capture.bytecode.decode import Decoded


class Unset:
    """A local variable that has no value, or the empty place below a callable on the stack."""

    def __repr__(self) -> str:
        return "<unset>"

    def __copy__(self) -> Unset:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Unset:
        return self


UNSET = Unset()


def iterator_on(stack: list[Any], above: int = 0) -> Any:
    """The iterator that a loop goes through, below `above` values. From Python 3.15 on there is an
    empty place above it."""
    at = len(stack) - above - 1
    return stack[at - 1] if stack[at] is UNSET else stack[at]


def drop_iterator(stack: list[Any], above: int = 0) -> None:
    """Take it off the stack."""
    at = len(stack) - above - 1
    del stack[at - (stack[at] is UNSET) : at + 1]


@dataclass(frozen=True)
class Link:
    """What happens with the result of a frame in the frame below it.

    `kind` is the name of a rule in `links.py`, `data` what the rule needs (values of the user
    among them).
    """

    kind: str
    data: tuple[Any, ...] = ()


PUSH = Link("push")
"""The result goes on the caller's stack."""


@dataclass
class Listing:
    """A frame written down: what never changes, and every value in it as one flat list."""

    fn: FunctionType
    decoded: Decoded
    ip: int
    last: int
    slots: int
    """How many of the values are local variables and cells; the stack follows."""
    stack: int
    link: str
    kw_names: tuple[str, ...]
    generator: Any
    """The generator whose body this is, or None."""
    values: list[Any]
    """Local variables and cells (`slot_names` has their names), the stack, the exception that is
    being handled (or None), and what the link holds."""


class PythonFrame:
    """A function that is being run: its variables, its stack and where it is.

    `slots` holds local variables, then cells (`types.CellType`), in the order of `slot_names`.
    `ip` is the number of the next instruction, `last` of the one being executed (or waited for,
    when a callee's frame lies above).
    """

    __slots__ = (
        "builtins", "code", "decoded", "fn", "generator", "globals", "handled", "ip",
        "kw_names", "last", "link", "slots", "stack",
    )  # fmt: skip

    def __init__(self, fn: FunctionType, decoded: Decoded, slots: list[Any], link: Link) -> None:
        self.fn, self.decoded, self.slots, self.link = fn, decoded, slots, link
        self.code: CodeType = fn.__code__
        self.globals: dict[str, Any] = fn.__globals__
        self.builtins: dict[str, Any] = getattr(fn, "__builtins__")  # noqa: B009 (not in stubs)
        self.stack: list[Any] = []
        self.ip = 0
        self.last = 0
        self.handled: BaseException | None = None
        self.kw_names: tuple[str, ...] = ()
        self.generator: Any = None

    @property
    def line(self) -> int:
        """The line of the instruction being executed."""
        return self.decoded.lines[self.last]

    @property
    def place(self) -> Place:
        """(code object, line): what `base.where.describe` puts into words."""
        return self.code, self.line

    @property
    def locals(self) -> dict[str, Any]:
        """Variables that have a value, the contents of cells included."""
        found = {}
        for name, value in zip(self.decoded.slot_names, self.slots, strict=True):
            if is_a(value, CellType) and name in self.decoded.cell_names:
                try:
                    value = value.cell_contents
                except ValueError:
                    continue
            if value is not UNSET:
                found[name] = value
        return found

    @property
    def cells(self) -> dict[str, CellType]:
        """Variables shared with other functions."""
        pairs = zip(self.decoded.slot_names, self.slots, strict=True)
        known = self.decoded.cell_names
        return {n: v for n, v in pairs if n in known and is_a(v, CellType)}

    def listing(self) -> Listing:
        """Write it down. The same objects stand in the listing; nothing is copied."""
        values = [*self.slots, *self.stack, self.handled, *self.link.data]
        return Listing(
            self.fn, self.decoded, self.ip, self.last, len(self.slots), len(self.stack),
            self.link.kind, self.kw_names, self.generator, values,
        )  # fmt: skip

    def copy(self) -> PythonFrame:
        """Another frame in the same state (which holds the same objects). If it is a generator's,
        that generator keeps the frame it has."""
        return _frame_from(self.listing(), None)

    def __repr__(self) -> str:
        name = self.decoded.ops[self.ip].name if self.ip < len(self.decoded.ops) else "end"
        return f"<frame of {self.code.co_qualname}, line {self.line}, before {name}>"


def rebuilt(listing: Listing, values: list[Any] | None = None) -> PythonFrame:
    """A frame in the state of a listing, with other values in the same places if they are given.

    If it is a generator's, it becomes the frame of that generator.
    """
    frame = _frame_from(listing, values)
    if frame.generator is not None:
        frame.generator.frame = frame
    return frame


def _frame_from(listing: Listing, values: list[Any] | None) -> PythonFrame:
    values = listing.values if values is None else values
    if len(values) != len(listing.values):
        raise ValueError(
            f"a frame of {listing.fn.__qualname__} holds {len(listing.values)} values here, "
            f"{len(values)} were given"
        )
    first, second = listing.slots, listing.slots + listing.stack
    link = Link(listing.link, tuple(values[second + 1 :]))
    frame = PythonFrame(listing.fn, listing.decoded, list(values[:first]), link)
    frame.stack = list(values[first:second])
    frame.handled = values[second]
    frame.ip, frame.last, frame.kw_names = listing.ip, listing.last, listing.kw_names
    frame.generator = listing.generator
    return frame
