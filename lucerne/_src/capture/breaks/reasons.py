"""Breaks: what a graph can't hold, with a number, the user's line, the reason and a fix.

A break is no error. The graph ends there, the line runs as Python, and what follows is captured
again (`resume`). With `fullgraph=True` the same text is raised. `KINDS` is the one table of what
can be in the way; docs/guide/breaks.md lists it.
"""

from __future__ import annotations

import builtins
import functools
import sys
import threading
import types
from dataclasses import dataclass, replace
from typing import Any

from lucerne._src.base.homes import own_home
from lucerne._src.base.process.source_location import Place, describe
from lucerne._src.base.raw import is_a
from lucerne._src.capture.breaks import debugger
from lucerne._src.capture.trace.fake import CaptureError, DataNeededError


@dataclass(frozen=True)
class BreakKind:
    """A kind of break: its name, and templates for what is said. `{what}` is the thing itself."""

    number: int
    name: str
    reason: str
    fix: str


KINDS: dict[str, BreakKind] = {
    name: BreakKind(k, name, reason, fix)
    for k, (name, reason, fix) in enumerate(
        [
            (
                "branch",
                "Python decides by the values of a tensor ({what}), which a graph does not have",
                "compute both sides and choose with torch.where(condition, a, b), or torch.cond",
            ),
            (
                "values",
                "{what} looks at the values of a tensor (item(), tolist(), numpy(), printing)",
                "keep it a tensor while you compute; call {what} once, after the compiled function",
            ),
            (
                "shape",
                "{what}: the shape of the result depends on the data",
                "keep the shape: torch.where(mask, x, 0), multiply by the mask, or topk",
            ),
            (
                "print",
                "print shows something at this very moment; a graph has no such moment",
                "return the value and print it outside, or print every 100 steps",
            ),
            (
                "logging",
                "{what} writes to a log at this very moment; a graph has no such moment",
                "return the value and log it outside of the compiled function",
            ),
            (
                "warnings",
                "{what} warns at this very moment; a graph has no such moment",
                "warn outside of the compiled function",
            ),
            (
                "file",
                "{what} reads or writes a file; a graph holds tensors only",
                "do it before or after the compiled function",
            ),
            (
                "clock",
                "{what} reads the clock: its answer is another one at each call",
                "measure outside of the compiled function, or with lucerne.profiler",
            ),
            (
                "random",
                "{what} draws from Python's random numbers: another one at each call",
                "draw with torch.rand or torch.randint, which are part of the graph",
            ),
            (
                "numpy",
                "{what} is NumPy's: it computes outside of the graph, and has no derivative",
                "use the function of the same name in torch (torch.sqrt for np.sqrt)",
            ),
            (
                "environment",
                "{what} asks the system for something that may change at any time",
                "read it once, outside, and pass it as an argument",
            ),
            (
                "generator state",
                "{what} sets the state of a random generator, which a graph can't hold",
                "seed before the call",
            ),
            (
                "disabled",
                "{what} is marked torch.compiler.disable",
                "take the mark away if the function only computes with tensors",
            ),
            (
                "backward",
                "backward() goes through tensors that were computed before this part began",
                "compute the loss and call backward() without a break in between, or call "
                "backward() outside",
            ),
            (
                "changing value",
                "{what} is another one at each call: a graph would be made for each",
                "keep the count in a tensor (count.add_(1)), or count outside of the function",
            ),
            (
                "library",
                "{what} is a function that is not written in Python, or of the standard library: "
                "what it does besides its result can't be seen",
                "call it before or after the compiled function, or pass its result as an argument",
            ),
            (
                "iterator",
                "{what} goes on from where it was left, which is another place at each call",
                "make the list or range inside of the function",
            ),
            (
                "instruction",
                "{what} is an instruction of Python that is not understood here",
                "nothing needs to be done: it runs as Python; please report it",
            ),
            (
                "object",
                "{what} can't be made again by a program",
                "make it outside of the function, or use lists, dicts and plain classes",
            ),
            (
                "write",
                "{what} is written to in a way that a program can't repeat",
                "write to it outside of the function, or write out of place: x = x + 1",
            ),
            (
                "subclass",
                "{what} handles ops itself",
                "define __tensor_flatten__ and __tensor_unflatten__ in its class, or give the "
                "function plain tensors",
            ),
            (
                "not captured",
                "{what}",
                "move this line out of the compiled function",
            ),
            (
                "too many versions",
                "{what}",
                "pass what changes as a tensor; torch.compile(dynamic=True) for sizes",
            ),
            (
                "too many breaks",
                "one call broke {what} times: a graph between each two lines saves nothing",
                "compile a smaller function without the breaking lines",
            ),
            (
                "callback",
                "{what} is called by a function that is not written in Python, which can't be "
                "followed there, and may do more than compute",
                "call it from Python code (a loop instead of sort, a method instead of %s), or "
                "outside of the compiled function",
            ),
            (
                "hook",
                "{what} is called in the backward pass, where it does more than compute with "
                "gradients",
                "nothing needs to be done: it runs there, between two graphs; for one graph, do "
                "no more than compute in it",
            ),
            (
                "internal error",
                "making a program of this part raised {what}",
                "nothing needs to be done: it runs as Python; please report it",
            ),
            (
                "identity",
                "{what} depends on which object or memory it is, not on its value",
                "decide by values, shapes or a flag, or decide outside of the function",
            ),
            (
                "size",
                "a size that depends on the data is needed as a plain number, by a loop, "
                "a list, a key or text",
                "compute with the size (shapes, arithmetic, comparisons) or with all elements at "
                "once instead of a loop over them",
            ),
            (
                "debugger",
                "{what} stops in the frame of the function or asks for it, "
                "which compiled code does not have: "
                "the whole of it runs uncompiled",
                "nothing needs to be done; it is compiled again when that line is gone",
            ),
        ],
        start=1,
    )
}  # fmt: skip


@dataclass(frozen=True)
class Break:
    """Where a graph ended, and why.

    >>> from lucerne._src.capture.breaks.reasons import made
    >>> print(made("print", place=None))
    break 4 (print) at an unknown line: print shows something at this very moment; a graph has no \
such moment. Fix: return the value and print it outside, or print every 100 steps
    """

    number: int
    """Of its kind (`KINDS`)."""
    kind: str
    place: Place | None
    reason: str
    fix: str

    @property
    def code_name(self) -> str:
        """The name of the function it is in."""
        return "" if self.place is None else self.place[0].co_name

    def at(self, place: Place | None) -> Break:
        """The same with a place, if it has none."""
        return self if self.place is not None else replace(self, place=place)

    def __str__(self) -> str:
        at = describe(self.place)
        return f"break {self.number} ({self.kind}) at {at}: {self.reason}. Fix: {self.fix}"


def made(kind: str, place: Place | None, what: str = "") -> Break:
    """A break of a kind; `what` is the thing it is about."""
    found = KINDS[kind]
    return Break(
        found.number, kind, place, found.reason.format(what=what), found.fix.format(what=what)
    )


class BreakError(CaptureError):
    """A break that has to be told as an error, since nothing may run uncaptured."""

    def __init__(self, found: Break) -> None:
        super().__init__(str(found))
        self.found = found


# ---- of which kind ------------------------------------------------------------------------------

_BY_MODULE = {
    "time": "clock",
    "datetime": "clock",
    "random": "random",
    "_random": "random",
    "secrets": "random",
    "uuid": "random",
    "logging": "logging",
    "warnings": "warnings",
    "_warnings": "warnings",
    "os": "environment",
    "posix": "environment",
    "nt": "environment",
    "platform": "environment",
    "socket": "environment",
    "getpass": "environment",
    "io": "file",
    "_io": "file",
    "pathlib": "file",
    "shutil": "file",
    "tempfile": "file",
}


def home_of(fn: Any) -> str:
    """The top-level module that a callable belongs to."""
    owner: Any = getattr(fn, "__self__", None)
    home = getattr(fn, "__module__", None)
    if not isinstance(home, str):
        kind = owner if is_a(owner, type) else type(owner) if owner is not None else type(fn)
        name = getattr(fn, "__name__", "")  # (of a class of the user's that extends list: list's)
        kind = next((c for c in kind.__mro__ if is_a(vars(c).get(name), _IN_C)), kind)
        home = owner.__name__ if is_a(owner, types.ModuleType) else kind.__module__
    return own_home(str(home)).partition(".")[0]


def _module_of(fn: Any) -> str:
    """The full name of the module of a function or of the object it is a method of."""
    owner: Any = getattr(fn, "__self__", None)
    home = getattr(fn, "__module__", None)
    if isinstance(home, str):
        return home
    return str(getattr(owner, "__module__", "") or type(owner).__module__)


def name_of(fn: Any) -> str:
    """How a callable is called in a message."""
    name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None)
    if not isinstance(name, str):
        name = type(fn).__qualname__
    home = home_of(fn)
    plain = home in ("builtins", "__main__", "") or name.startswith(home + ".")
    return f"{name}()" if plain or "." in name else f"{home}.{name}()"


def kind_of_home(home: str) -> str:
    """The kind of break that a call of a function of this module is."""
    return _BY_MODULE.get(home, "library")


def kind_of_call(fn: Any) -> str:
    """The kind of break that a call of something foreign is."""
    if debugger.stops_here(fn) or debugger.stops_inside(fn):
        return debugger.KIND
    if fn is print:
        return "print"
    if fn is open or fn is input:
        return "file"
    if _module_of(fn).startswith("numpy"):
        return "random" if "random" in _module_of(fn) else "numpy"
    owner = getattr(fn, "__self__", None)
    if owner is not None and is_foreign_object(owner):
        return kind_of_home(own_home(type(owner).__module__).partition(".")[0])
    return kind_of_home(home_of(fn))


_BY_TEXT: list[tuple[str, str]] = [
    ("depends on the data", "shape"),
    ("random generator", "generator state"),
    ("backward() through", "backward"),
    ("takes part in autograd is written", "write"),
    ("handles ops itself", "subclass"),
    ("compiler.disable", "disabled"),
    ("kept out of graphs", "disabled"),
    ("changes", "changing value"),
]
"""What older messages say, and the kind they are; the first that fits."""


def of_error(error: BaseException, place: Place | None, what: str = "") -> Break:
    """The break that an error of capturing tells of; `what`: the call that raised it."""
    if isinstance(error, BreakError):
        return error.found
    if isinstance(error, DataNeededError):
        return made("values", place, what or "this line")
    text = str(error)
    for piece, kind in _BY_TEXT:
        if piece in text:
            named = text.partition(":")[0] if kind == "shape" else what or "this line"
            return made(kind, place, named)
    return made("not captured", place, text.rstrip("."))


# ---- calls that Python code makes besides ops ---------------------------------------------------

_PURE_HOMES = frozenset(
    (
        "builtins", "math", "cmath", "operator", "_operator", "functools", "_functools",
        "itertools", "collections", "_collections", "_collections_abc", "dataclasses", "typing",
        "types", "enum", "abc", "_abc", "numbers", "copy", "copyreg", "string", "_string", "re",
        "contextlib", "lucerne", "inspect", "fractions", "decimal", "statistics", "bisect",
        "_bisect", "heapq", "_heapq", "textwrap", "weakref", "_weakref", "reprlib", "keyword",
        "annotationlib", "_typing", "graphlib", "struct", "_struct", "array", "hashlib", "_thread",
        "threading", "ast", "dis", "opcode", "token", "tokenize", "linecache",
    )
)  # fmt: skip
"""Modules of the standard library (and ours) whose functions do nothing but give a result."""
_NUMPY_OUTSIDE = frozenset(
    (
        "save", "savez", "load", "savetxt", "loadtxt", "fromfile", "tofile", "geterr", "seterr",
        "geterrcall", "seterrcall", "errstate", "getbufsize", "setbufsize", "get_printoptions",
        "set_printoptions", "printoptions", "array2string", "array_repr", "array_str",
    )
)  # fmt: skip
"""Functions of NumPy that read or write files, or settings of the process."""
_IN_C = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_IMPURE_NAMES = (
    "print", "open", "input", "exec", "eval", "compile", "breakpoint", "__import__", "globals",
    "vars", "locals", "__build_class__",
)  # fmt: skip
_IMPURE_BUILTINS = frozenset(getattr(builtins, name) for name in _IMPURE_NAMES)


def is_foreign_home(home: str) -> bool:
    """Whether functions of this module may do something besides giving a result."""
    return home in _BY_MODULE or (home in sys.stdlib_module_names and home not in _PURE_HOMES)


def is_foreign_object(x: Any) -> bool:
    """Whether it is an object whose answers may change at any time: `os.environ`, a file."""
    home = own_home(type(x).__module__).partition(".")[0]
    if is_a(x, _LOCKS):
        return True
    return home in _BY_MODULE and not is_a(x, (type, types.ModuleType))


_CACHE = type(functools.lru_cache(lambda: None))
_LOCKS = (type(threading.Lock()), type(threading.RLock()))


def is_foreign(fn: Any) -> bool:
    """Whether calling it may do something besides giving a result, or give another one each time.

    >>> import math, time
    >>> from lucerne._src.capture.breaks.reasons import is_foreign
    >>> is_foreign(print), is_foreign(time.time), is_foreign(math.sqrt), is_foreign(len)
    (True, True, False, False)
    """
    try:
        if fn in _IMPURE_BUILTINS:
            return True
    except TypeError:  # it has no hash, so it is none of them (a function of ctypes)
        pass
    if debugger.stops_inside(fn):
        return True
    owner = getattr(fn, "__self__", None)
    if owner is not None and is_foreign_object(owner):
        return True
    if type(owner) is _CACHE and getattr(fn, "__name__", "") in ("cache_info", "cache_clear"):
        return True
    home = home_of(fn)
    if home == "numpy":
        return "random" in _module_of(fn) or getattr(fn, "__name__", "") in _NUMPY_OUTSIDE
    if is_foreign_home(home):
        return True
    known = home in _PURE_HOMES or home in sys.stdlib_module_names
    return not known and is_a(fn, _IN_C)
