"""The quick tier of the matrix: rows of every module, in the columns that find most."""

from __future__ import annotations

import pytest

from tests.effects import text
from tests.effects.all_kinds import KINDS
from tests.effects.cells import check, differences
from tests.effects.columns import COLUMNS
from tests.effects.kinds import PLACES, Kind
from tests.effects.processes import compare

CELLS = [
    ("variable", "read write read"),
    ("attribute", "nested"),
    ("slots", "parts write"),
    ("property that counts", "in parts"),
    ("attribute that comes and goes", "read write read"),
    ("list item", "parts write"),
    ("list of tensors that grows", "nested"),
    ("dict get", "read write read"),
    ("deque", "parts write"),
    ("defaultdict", "nested"),
    ("numpy by item", "parts write"),
    ("array.array", "nested"),
    ("memoryview", "parts write"),
    ("numpy by out in a place", "parts write"),
    ("numpy by a tensor over it", "parts write"),
    ("ctypes value", "before"),
    ("slot that is empty", "read write read"),
    ("__class__ assigned", "parts write"),
    ("__getattribute__ added", "before"),
    ("generator that is sent", "nested"),
    ("dict view", "before"),
    ("weak dict", "parts write"),
    ("hook for all modules", "before"),
    ("code by starmap", "before"),
    ("defaults by re.sub", "before"),
    ("lru_cache", "read write read"),
    ("bytearray that grows", "parts write"),
]


@pytest.mark.parametrize(("name", "column"), CELLS, ids=lambda x: x.replace(" ", "_"))
def test_compiled_as_eager(name: str, column: str) -> None:
    found = check(KINDS[name], COLUMNS[column], "closure")
    assert found.how != "-", found.differs
    assert not found.differs


def test_every_program_is_python() -> None:
    count = 0
    for kind in KINDS.values():
        for column in COLUMNS.values():
            place = PLACES[count % len(PLACES)]
            if text.fits(kind, column, place):
                compile(text.source(kind, column, place), "cell", "exec")
            count += 1
    assert count > 20_000


def test_a_state_that_is_not_followed_is_found() -> None:
    """A planted difference: what is compared differs between the two sides."""
    told = "S = [0.0]\nclass Told:\n    def __call__(self): return time.perf_counter()\nt = Told()"
    planted = Kind("planted", told, "1.0", state="t()")
    assert check(planted, COLUMNS["before"], "closure").differs


def test_differences_are_seen() -> None:
    assert differences([("a", 1.0)], [("a", 2.0)])
    assert differences([("a", 1)], [("a", True)])
    assert differences([("a", 1)], [])
    assert not differences([("a", 1)], [("a", 1)])


def test_a_second_process_sees_its_own_state() -> None:
    """Programs that one process has stored, in one whose functions have other code and defaults."""
    count, hits, wrong = compare(["defaults by starmap", "code by re.sub"])
    assert not wrong, wrong
    assert count >= 8
    assert hits >= count // 2
