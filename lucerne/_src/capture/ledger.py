"""The ledger: every compile of this process, with its reason and its cost; and budgets for them.

    with compiling(fn, first=True, why="first call") as row:
        row.made(entry)

`lucerne.compiler.ledger()` shows it. A budget that is exceeded raises, with the ledger in the
message: nobody should learn from a bill that a function was compiled four hundred times.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from lucerne._src.base.config import config
from lucerne._src.base.process import notices
from lucerne._src.capture.guards import describe
from lucerne._src.capture.report import page

FIRST, PART, RECOMPILE, SIZES = "first call", "part", "recompile", "other sizes"
NOT_PAID = "runs uncompiled"
AGAIN = frozenset((RECOMPILE, SIZES))
"""What a budget for recompiles counts."""
_MOST_ROWS = 4096
_SHOWN = 24
"""Rows in the message of an error."""


class CompileBudgetError(RuntimeError):
    """More was compiled than a budget allows."""

    is_for_caller = True
    """See `faults.goes_through`."""


class OftenCompiledWarning(UserWarning):
    """A function is compiled again and again."""

    is_for_caller = True
    """Where warnings are errors, it is one."""


@dataclass
class LedgerRow:
    """One compile."""

    function: str
    file: str
    line: int
    kind: str
    """FIRST, PART (what follows a break), RECOMPILE (a guard failed), SIZES (another size of a
    capture for all sizes) or NOT_PAID (timed both ways, it was slower in parts)."""
    why: str
    began: float
    """Seconds since the epoch."""
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds by stage."""
    nodes: int = 0
    """Of the captured graph."""
    steps: int = 0
    compiled: int = 0
    """Kernels that were new."""
    loaded: int = 0
    """Kernels that were found on disk."""
    program: str = ""
    """"hit" or "miss" of the program cache on disk; empty: it was not asked."""
    breaks: int = 0
    problem: str = ""
    """What was raised instead."""
    one_size: str = ""
    """Why the program is for these sizes alone, where a capture for all sizes was there."""

    def made(self, entry: Any) -> None:
        """Note what was compiled."""
        captured = getattr(entry, "captured", None)
        self.nodes = len(captured.graph.nodes) if captured is not None else 0
        joint = getattr(entry, "joint", None)
        for stages in (getattr(entry, "stages", None), getattr(joint, "stages", None)):
            if stages is None:
                continue
            for name, seconds in stages.seconds.items():
                self.stages[name] = self.stages.get(name, 0.0) + seconds
            self.steps += 0 if stages.program is None else len(stages.program.steps)
            on_disk = sum(1 for *_, from_disk in stages.kernels if from_disk)
            self.loaded += on_disk
            self.compiled += len(stages.kernels) - on_disk
        self.program = getattr(entry, "cache", "") or self.program


@dataclass
class Budget:
    """How much may be compiled while it is in force, and how much was."""

    recompiles: int | None = None
    seconds: float | None = None
    breaks: int | None = None
    rows: list[LedgerRow] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Where graphs ended."""

    def check(self, more: bool) -> None:
        """Raise if it is exceeded, or (`more`) would be by one more compile."""
        again = [r for r in self.rows if r.kind in AGAIN]
        spent = sum(r.seconds for r in self.rows)
        if self.recompiles is not None and len(again) > self.recompiles:
            last = again[-1]
            raise CompileBudgetError(
                f"{last.function} is compiled again, which is recompile {len(again)} where the "
                f"budget allows {self.recompiles}: {last.why}.\n{_advice(last)}\n\n"
                f"{table(self.rows, _SHOWN)}"
            )
        if self.seconds is not None and (spent >= self.seconds if more else spent > self.seconds):
            slowest = max(self.rows, key=lambda r: r.seconds)
            raise CompileBudgetError(
                f"compiling has taken {spent:.2f} s where the budget allows {self.seconds:g} s; "
                f"most of it {slowest.function} ({slowest.seconds:.2f} s).\n\n"
                f"{table(self.rows, _SHOWN)}"
            )

    def check_breaks(self, function: str, found: object) -> None:
        """Note that a graph ended; raise if that is one more than is allowed."""
        self.broken.append(f"{function}: {found}")
        if self.breaks is not None and len(self.broken) > self.breaks:
            raise CompileBudgetError(
                f"{function} is not one graph, which is break {len(self.broken)} where the budget "
                f"allows {self.breaks}:\n" + "\n".join(self.broken[-_SHOWN:])
            )


def _advice(row: LedgerRow) -> str:
    if "it was" in row.why and "[" in row.why:
        return "Sizes that change: compile(dynamic=True), or compiler.mark_dynamic(tensor, dim)."
    if "it was" in row.why:
        return "A value that changes: pass it as a tensor, or compute what depends on it outside."
    return "Keep what the function reads from outside the same, or pass it as an argument."


class _Books:
    """All rows, and the budgets in force."""

    def __init__(self) -> None:
        self.rows: deque[LedgerRow] = deque(maxlen=_MOST_ROWS)
        self.open = 0
        """Compiles that are going on."""
        self.begun = 0
        """Compiles of this process, all of them."""
        self.of_function: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """How often each was traced; parts and other sizes of a known capture don't count."""
        self.budgets: list[Budget] = []
        self.whole = Budget()
        """That of `config`, over the whole process."""

    def in_force(self) -> list[Budget]:
        whole = self.whole
        whole.recompiles = config.recompile_budget if config.recompile_budget >= 0 else None
        whole.seconds = config.compile_seconds or None
        whole.breaks = config.break_budget if config.break_budget >= 0 else None
        limits = (whole.recompiles, whole.seconds, whole.breaks)
        limited = any(limit is not None for limit in limits)
        return [*self.budgets, whole] if limited else self.budgets


BOOKS = _Books()

ENTRIES: weakref.WeakKeyDictionary[Any, tuple[Any, Any]] = weakref.WeakKeyDictionary()
"""All compiled versions that are alive: the function and the options of each."""


def note(row: LedgerRow, compiled: Any, entry: Any) -> None:
    """A compile is done: enter it."""
    row.made(entry)
    row.breaks = len(compiled.breaks)
    ENTRIES[entry] = compiled.fn, compiled.options


def _progress(row: LedgerRow) -> threading.Timer | None:
    """What says, unless it is cancelled in time, that a first call is still being compiled."""
    if config.progress_seconds <= 0 or row.kind != FIRST:
        return None

    def say() -> None:
        where = f" ({row.file}:{row.line})" if row.file else ""
        sys.stderr.write(
            f"lucerne: still compiling {row.function}{where} after {config.progress_seconds:g} s; "
            "later calls are fast\n"
        )

    made = threading.Timer(config.progress_seconds, say)
    made.daemon = True
    made.start()
    return made


@contextmanager
def compiling(fn: Any, kind: str, why: str) -> Iterator[LedgerRow]:
    """A compile, from its beginning to its end; raises where a budget forbids it."""
    file, line = describe.place_of(fn)
    row = LedgerRow(describe.name_of(fn), file, line, kind, why, time.time())
    budgets = BOOKS.in_force()
    for budget in budgets:
        budget.check(more=True)
        budget.rows.append(row)
    try:
        for budget in budgets:
            budget.check(more=False)
    except CompileBudgetError as error:
        row.problem = str(error).partition("\n")[0]
        BOOKS.rows.append(row)
        raise
    began = time.perf_counter()
    slow = _progress(row) if BOOKS.open == 0 else None
    BOOKS.open += 1
    BOOKS.begun += 1
    _say_once_if_often(fn, row)
    try:
        yield row
    except BaseException as error:
        found = getattr(error, "found", None)  # a break: no mistake, but not one graph either
        told = f"{type(error).__name__}: {error}".partition("\n")[0]
        row.problem = told if found is None else f"it goes on in parts ({found.kind})"
        raise
    finally:
        BOOKS.open -= 1
        row.seconds = time.perf_counter() - began
        if slow is not None:
            slow.cancel()
        BOOKS.rows.append(row)
    for budget in budgets:
        budget.check(more=False)


def _say_once_if_often(fn: Any, row: LedgerRow) -> None:
    """A function that is compiled again and again costs more than it saves, and nobody sees why."""
    if row.kind not in (FIRST, RECOMPILE) or not config.often_compiled:
        return
    try:
        count = BOOKS.of_function[fn] = BOOKS.of_function.get(fn, 0) + 1
    except TypeError:  # it takes no weak reference
        return
    if count == config.often_compiled:
        notices.warn(
            f"{row.function} is compiled for the {count}th time, now because: {row.why}. "
            f"{_advice(row)} `lucerne.compiler.ledger()` shows all of them.",
            OftenCompiledWarning,
        )


def broke(fn: Any, found: object) -> None:
    """A graph has ended at a place that was not known: budgets may forbid it."""
    for budget in BOOKS.in_force():
        budget.check_breaks(describe.name_of(fn), found)


def not_paid(fn: Any, why: str, breaks: int) -> None:
    """A function runs as it is from now on, since that is faster."""
    file, line = describe.place_of(fn)
    row = LedgerRow(describe.name_of(fn), file, line, NOT_PAID, why, time.time(), breaks=breaks)
    BOOKS.rows.append(row)


@contextmanager
def budget(
    recompiles: int | None = None, seconds: float | None = None, breaks: int | None = None
) -> Iterator[Budget]:
    """Inside, compiling more than this raises `CompileBudgetError`.

    `recompiles`: of functions that had been compiled before. `seconds`: of all compiling. `breaks`:
    places where a function is not one graph. The one that goes over it raises: before it begins
    where that is known, else when it is done.
    """
    made = Budget(recompiles, seconds, breaks)
    BOOKS.budgets.append(made)
    try:
        yield made
    finally:
        BOOKS.budgets.remove(made)


class Ledger:
    """The compiles of this process, oldest first. Prints as a table; `rows` are the records."""

    def __init__(self, rows: list[LedgerRow]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[LedgerRow]:
        return iter(self.rows)

    def __getitem__(self, k: int) -> LedgerRow:
        return self.rows[k]

    @property
    def seconds(self) -> float:
        """Of all compiling."""
        return sum(r.seconds for r in self.rows)

    @property
    def recompiles(self) -> int:
        """How many were not the first of their function."""
        return sum(r.kind in AGAIN for r in self.rows)

    def json(self) -> list[dict[str, Any]]:
        """As plain lists and dicts."""
        return [asdict(r) for r in self.rows]

    def html(self) -> str:
        """As a page that needs no other file."""
        return page.page("Compile ledger", self.table_html())

    def table_html(self) -> str:
        """The rows as an HTML table."""
        most = max((r.seconds for r in self.rows), default=0.0) or 1.0
        heads = ("function", "when", "ms", "", "why", "nodes", "steps", "new", "disk", "program",
                 "breaks", "stages")  # fmt: skip
        return page.table(heads, [_cells(r, most) for r in self.rows])

    def __str__(self) -> str:
        return table(self.rows)

    __repr__ = __str__


def ledger() -> Ledger:
    """Every compile of this process so far."""
    return Ledger(list(BOOKS.rows))


def clear() -> None:
    """Begin anew: what was spent before counts for no budget."""
    BOOKS.rows.clear()
    BOOKS.whole.rows.clear()


def told(r: LedgerRow) -> str:
    """Why it was compiled, in one line."""
    return r.why if r.kind in (FIRST, PART) else f"{r.kind}: {r.why}"


def _cells(r: LedgerRow, most: float) -> list[str]:
    """A row as HTML."""
    why = told(r)
    problem = f' <span class="bad">{page.escape(r.problem)}</span>' if r.problem else ""
    slowest = sorted(((n, s) for n, s in r.stages.items() if s >= 1e-3), key=lambda x: -x[1])[:4]
    stages = ", ".join(f"{name} {1e3 * s:.0f} ms" for name, s in slowest)
    place = page.escape(f"{r.file}:{r.line}")
    return [
        f'<span title="{place}">{page.escape(r.function)}</span>',
        time.strftime("%H:%M:%S", time.localtime(r.began)),
        f"{1e3 * r.seconds:.1f}",
        f'<i style="width:{100 * r.seconds / most:.0f}px"></i>',
        page.escape(why) + problem,
        *map(str, (r.nodes, r.steps, r.compiled, r.loaded)),
        r.program,
        str(r.breaks),
        page.escape(stages),
    ]


_HEAD = f"{'function':<24}{'ms':>8}{'nodes':>7}{'steps':>7}{'new':>5}{'disk':>5}  why"


def table(rows: list[LedgerRow], most: int | None = None) -> str:
    """Rows as text, the last ones if there are too many."""
    if not rows:
        return "nothing was compiled"
    shown = rows if most is None else rows[-most:]
    lines = [_HEAD]
    if len(shown) < len(rows):
        lines.append(f"... {len(rows) - len(shown)} before these")
    for r in shown:
        why = told(r)
        why += f"; program cache: {r.program}" if r.program else ""
        why += f"; for these sizes alone: {r.one_size}" if r.one_size else ""
        why += f"; {r.breaks} breaks" if r.breaks else ""
        why += f"; {r.problem}" if r.problem else ""
        name = r.function if len(r.function) <= 23 else "..." + r.function[-20:]
        lines.append(
            f"{name:<24}{1e3 * r.seconds:>8.1f}{r.nodes:>7}{r.steps:>7}{r.compiled:>5}"
            f"{r.loaded:>5}  {why}"
        )
    again = sum(r.kind in AGAIN for r in rows)
    total = 1e3 * sum(r.seconds for r in rows)
    lines.append(f"{'all':<24}{total:>8.1f}  {len(rows)} compiles, {again} of them recompiles")
    return "\n".join(lines)
