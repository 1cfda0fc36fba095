"""What a machine asks while it runs a user's function: the hooks, and the plain answers to them.

A `Machine` knows Python and nothing of tensors or graphs. Who runs it decides, through an object
with these methods, which calls are entered, which run as they are, and where to stop; and sees
every read of something outside the frames and every write to it.
"""

from __future__ import annotations

import enum
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any, Protocol

from lucerne._src.base.process.source_location import is_users
from lucerne._src.capture.bytecode.targets import python_function


class Decision(enum.Enum):
    """How a call is to be made."""

    INLINE = "inline"
    """As a frame of the machine, if there is a Python function behind it that the machine knows
    how to run; natively otherwise."""
    NATIVE = "native"
    """By the Python that runs us."""
    DEFERRED = "deferred"
    """Not now: who was asked will see to it. Its result is None."""


INLINE, NATIVE, DEFERRED = Decision.INLINE, Decision.NATIVE, Decision.DEFERRED


class Access(enum.Enum):
    """Which kind of place a read or a write concerns."""

    ATTRIBUTE = "attribute"
    GLOBAL = "global"
    CELL = "cell"
    """The container is the cell, the key the variable's name."""
    ITEM = "item"
    METHOD = "method"
    """A method that changes a list, dict, set, deque or bytearray is about to be called. The key
    is the method's name, `new` is (args, kwargs)."""
    GENERATOR = "generator"
    """Native code is about to advance a generator of ours: its `frame` will change."""
    CALL = "call"
    """Nothing is written: a function is called that tells somebody something."""


class Stop(BaseException):
    """The machine is to stop before the instruction at hand; raised (or returned) by hooks.

    It is a BaseException so that no handler of native code that stands between swallows it.
    """

    def __init__(self, reason: str, detail: Any = None) -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail
        self.inside: list[Any] = []
        """Frames of a machine that ran inside native code and cannot be resumed; the call of that
        native code is the instruction that stops."""


class Missing:
    """There was nothing, or nothing will be left (a deletion)."""

    def __repr__(self) -> str:
        return "<nothing>"


NOTHING = Missing()


class Natives(Protocol):
    """Who watches user code that native code calls. Hooks may have one as `natives`."""

    def concerns(self, name: str, argument: Any, stack: list[Any]) -> bool:
        """Whether an instruction may come to such code."""

    def run(self, handler: Any, *given: Any) -> Any:
        """Execute an instruction; raises Stop where user code must not run unseen."""

    def call(self, fn: Any, args: Any, kwargs: Any) -> Any:
        """Make a native call."""

    def unwatched(self, run: Any) -> Any:
        """Run something that watches itself."""


class Hooks(Protocol):
    """Who runs a machine. Every method may raise `Stop`: then the frames are as they were before
    the instruction."""

    def decide_call(
        self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Decision | Stop:
        """A call is about to be made. `fn` is what stands in the code: a function, a bound method,
        a class, an object with `__call__`."""

    def unknown(self, fn: Any, why: str) -> Stop | None:
        """A function that should be entered can't be, because of its code; it is called natively,
        where nobody is asked, unless there is a Stop."""

    def before_branch(self, value: Any) -> Stop | None:
        """Code asks whether a value is true (never called for True, False and None)."""

    def read(self, container: Any, key: Any, value: Any, how: Access) -> Any:
        """A value was read; what is returned is used in its place. (NOTHING: an attribute was
        looked for that is not there.)"""

    def same(self, left: Any, right: Any) -> bool:
        """Code asks whether two values are one object (`is`)."""

    def write(self, container: Any, key: Any, old: Any, new: Any, how: Access) -> None:
        """A write is about to happen. `old` is NOTHING if there was none or it isn't known, `new`
        is NOTHING for a deletion."""

    def made(self, value: dict[Any, Any]) -> None:
        """A new dict exists. (Of other objects Python's collector can tell whether they are new;
        it does not look after dicts of plain values.)"""

    def raised(self, error: BaseException) -> Stop | None:
        """An instruction has raised; a Stop hides that from the user's handlers."""


class Plain:
    """Hooks that make a machine behave as Python itself: user code is entered, nothing stops.

    >>> from lucerne._src.capture.bytecode import Finished, Machine, Plain
    >>> machine = Machine(Plain())
    >>> machine.run([machine.frame_of(lambda a, b=2: a * b, (21,))]).value
    42
    """

    def decide_call(
        self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Decision | Stop:
        """Enter what is the user's."""
        return decision_for(fn)

    def unknown(self, fn: Any, why: str) -> Stop | None:
        """Call it."""
        return None

    def before_branch(self, value: Any) -> Stop | None:
        """Branch."""
        return None

    def read(self, container: Any, key: Any, value: Any, how: Access) -> Any:
        """Take the value itself."""
        return value

    def same(self, left: Any, right: Any) -> bool:
        """Tell the truth."""
        return left is right

    def write(self, container: Any, key: Any, old: Any, new: Any, how: Access) -> None:
        """Let it happen."""

    def made(self, value: dict[Any, Any]) -> None:
        """Nothing depends on it."""

    def raised(self, error: BaseException) -> Stop | None:
        """Let the user's handlers have it."""
        return None


_STANDARD = str(Path(sysconfig.get_path("stdlib")).resolve())
_SITES = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
_ENTERED = frozenset(("contextlib.py", "functools.py", "_collections_abc.py", "dataclasses.py"))
"""Standard files whose functions are entered: they do little but call back into user code."""
_NOT_ENTERED = "_recursive_repr.<locals>.wrapper"
"""The one in there that keeps a set of its own. (From 3.13 on `reprlib` has it.)"""
_NATIVE_PACKAGES = ("numpy", "llvmlite", "scipy", "hypothesis", "_pytest")

_entered_by_name: dict[str, bool] = {}


def is_entered(code: CodeType) -> bool:
    """Whether code is the user's, or stands between two pieces of user code."""
    known = _entered_by_name.get(code.co_filename)
    if known is None:
        known = _entered_by_name[code.co_filename] = _is_entered(code)
    return known and code.co_qualname != _NOT_ENTERED


def _is_entered(code: CodeType) -> bool:
    name = code.co_filename
    if name.startswith("<frozen"):  # (a module that comes inside of Python's own binary)
        return f"{name[len('<frozen ') : -1]}.py" in _ENTERED
    if not is_users(code):
        return False
    if any(f"/site-packages/{package}/" in name for package in _NATIVE_PACKAGES):
        return False
    if name.startswith(_SITES) or "/site-packages/" in name:
        return True
    path = str(Path(name).resolve()) if name.startswith("/") else name
    if path.startswith(_STANDARD):
        return Path(name).name in _ENTERED
    return True


def decision_for(fn: Any) -> Decision:
    """INLINE if a call of `fn` ends in user code, else NATIVE."""
    target = python_function(fn)
    return INLINE if target is not None and is_entered(target.__code__) else NATIVE
