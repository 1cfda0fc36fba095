"""Planting: the functions that a compile enters are found by a profile hook, and one of them at a
time is made to raise. So a stage that is added tomorrow is covered tomorrow."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import lucerne
from lucerne._src.capture.aot.backward import Joint
from lucerne._src.capture.breaks.resume import Glue, ResumableFunction
from lucerne._src.capture.compiled import Compiled
from lucerne._src.capture.lazy.programs import Programs
from lucerne._src.capture.shadow.shadowing import PartShadow, Shadow
from lucerne._src.capture.trace.fake import CaptureError
from lucerne._src.ir.checks import index_maps

PACKAGE = str(Path(lucerne.__file__).parent / "_src") + "/"
HOMES = ("capture/", "transforms/", "loops/", "backends/", "pipeline/")
ERRORS: tuple[type[Exception], ...] = (
    RuntimeError, IndexError, ZeroDivisionError, KeyError, AssertionError, MemoryError,
    RecursionError, CaptureError,
)  # fmt: skip
MAKERS: tuple[CodeType, ...] = tuple(
    f.__code__
    for f in (
        Compiled._version, ResumableFunction._anew, ResumableFunction._instance, Joint.lean_for,
        Programs._tried, Shadow._compared, PartShadow._compared, Glue.decide_call,
        Glue.before_branch,
    )
)  # fmt: skip
"""Where making something begins, or asking what comes between two parts. What runs outside of them
is a program, not the compiler."""
PUTS_BACK = {
    "capture/faults.py": "",
    "capture/process_state.py": "restore _switches",
    "capture/trace/stand_ins.py": "restore",
    "capture/effects/stores.py": "put_back",
    "capture/trace/fake.py": "expose is_fake",
    "capture/trace/partial_graph.py": "end",
    "capture/effects/objects.py": "undo",
    "capture/effects/new_objects.py": "release",
    "capture/effects/journal.py": "undo",
    "capture/trace/subclasses.py": "restore",
    "capture/shadow/state.py": "put_back",
    "capture/trace/recorder.py": "changed_histories",
    "capture/guards/describe.py": "",
}
"""Not planted in, by file (empty: all of it): what puts the state back or tells of the error. It is
the net under the rope."""
VERIFIER = index_maps.holds.__code__
"""Asks whether fused loops are right, which tests switch on: it warns for itself."""


def _name(code: CodeType) -> str:
    return code.co_filename.removeprefix(PACKAGE)


def is_point(code: CodeType) -> bool:
    """Whether faults are planted in this function."""
    name = _name(code)
    if not code.co_filename.startswith(PACKAGE) or not name.startswith(HOMES):
        return False
    if code.co_name.startswith("<") and code.co_name != "<lambda>":
        return False  # module bodies and comprehensions
    spared = PUTS_BACK.get(name)
    return spared is None or bool(spared and code.co_name not in spared.split())


def is_making() -> bool:
    """Whether something is being made now."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code is not VERIFIER:
        if frame.f_code in MAKERS:
            return True
        frame = frame.f_back
    return False


def entered(run: Callable[[], Any]) -> list[CodeType]:
    """The functions that are entered while something is made, in order."""
    found: dict[CodeType, None] = {}

    def hook(frame: Any, event: str, arg: Any) -> None:
        code = frame.f_code
        if event == "call" and code not in found and is_point(code) and is_making():
            found[code] = None

    sys.setprofile(hook)
    try:
        run()
    finally:
        sys.setprofile(None)
    return list(found)


@contextmanager
def planted(code: CodeType, error: type[BaseException]) -> Iterator[Callable[[], int]]:
    """Inside, functions with this code raise while something is made. Gives how often they did."""
    functions = [f for f in gc.get_objects() if type(f) is FunctionType and f.__code__ is code]
    count = [0]
    kind = type("Planted" + error.__name__, (error,), {})

    def reached() -> bool:
        count[0] += is_making()
        return is_making()

    keys = []
    for f in functions:
        twin = FunctionType(code, f.__globals__, f.__name__, f.__defaults__, f.__closure__)
        twin.__kwdefaults__ = f.__kwdefaults__
        keys.append(f"__planted_{id(f)}")
        f.__globals__[keys[-1]] = twin, reached, kind
        _give_code(f, _raising(code, keys[-1]))
    try:
        yield lambda: count[0]
    finally:
        for f, key in zip(functions, keys, strict=True):
            _give_code(f, code)
            del f.__globals__[key]


def _give_code(f: FunctionType, code: CodeType) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a generator: 3.13 warns
        f.__code__ = code


def _raising(code: CodeType, key: str) -> CodeType:
    """Code with the same free variables and the same file that raises, or calls the twin."""
    free = ", ".join(code.co_freevars)
    uses = f"        if 0: ({free},)\n" if free else ""
    text = (
        f"def outer({free}):\n"
        "    def planted(*args, **kwargs):\n"
        f"{uses}"
        f"        twin, reached, error = {key}\n"
        "        if reached():\n"
        "            raise error('planted')\n"
        "        return twin(*args, **kwargs)\n"
        "    return planted\n"
    )
    scope: dict[str, Any] = {}
    exec(compile(text, code.co_filename, "exec"), scope)
    made = next(c for c in scope["outer"].__code__.co_consts if isinstance(c, CodeType))
    return made.replace(co_name=code.co_name, co_qualname=code.co_qualname)
