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
    ("property over a number in Kind", "before"),
    ("property over a module's attribute in Kind", "nested"),
    ("__bases__ with a property comes later", "before"),
    ("__class__ with __getattribute__ comes later", "before"),
    ("property with a setter comes later, where it is written", "read write read"),
    ("property of a metaclass comes later", "before"),
    ("__init__ comes later", "before"),
    ("__eq__ comes to a class later", "in parts"),
    ("__instancecheck__ comes later", "before"),
    ("property over tensor with attributes in Kind", "before"),
    ("is_leaf", "in parts"),
    ("grad_fn is None, in a list", "in parts"),
    ("retains_grad, of one and the same", "before"),
    ("requires_grad of the gradient, of one and the same", "before"),
    ("class of a tensor, of one and the same", "before"),
    ("is_inference", "in parts"),
    ("two slots of one tensor, place of memory", "in parts"),
    ("code", "tensor hook"),
    ("property over a slot in Kind", "tensor hook"),
    ("__init__ comes later", "tensor hook"),
    ("retains_grad, of one and the same", "tensor hook"),
    ("attribute hung, of one and the same", "tensor hook"),
    ("abc registered", "tensor hook"),
    ("partial setstate", "tensor hook"),
    ("builtin method of a dict", "tensor hook"),
    ("slot that is empty", "re.sub"),
    ("deque", "re.sub"),
    ("set asked", "re.sub that writes"),
]


@pytest.mark.parametrize(("name", "column"), CELLS, ids=lambda x: x.replace(" ", "_"))
def test_compiled_as_eager(name: str, column: str) -> None:
    found = check(KINDS[name], COLUMNS[column], "closure")
    assert found.how != "-", found.differs
    assert not found.differs


ELSEWHERE = [
    ("hash, in a list", "before", "argument"),
    ("key of a dict, in a list", "before", "argument"),
    ("is_set_to, in a list", "before", "argument"),
    ("subclass of list with append", "write", "closure"),
    ("subclass of set", "module", "closure"),
    ("resized", "module", "closure"),
    ("list reversed", "backward inside", "global"),
    ("defaults by defaultdict", "while", "argument"),
    ("defaults by operator.call", "finally", "global"),
    ("identity of two", "failed try", "global"),
    ("generator that is sent", "tensor hook", "closure"),
    ("__dict__ exchanged comes later, tensor", "max", "attribute"),
    ("iterator of a range", "re.sub that writes", "global"),
    ("environment by getenv", "re.sub", "global"),
    ("deque of a class", "write read", "closure"),
    ("items as attributes", "before", "closure"),
    ("numpy flat iterator", "tensor hook", "closure"),
    ("numpy void", "hook that writes", "closure"),
    ("array.array that grows", "tensor hook", "closure"),
    ("items as attributes, by get", "read write read", "closure"),
]


@pytest.mark.parametrize(("name", "column", "place"), ELSEWHERE, ids=lambda x: x.replace(" ", "_"))
def test_compiled_as_eager_elsewhere(name: str, column: str, place: str) -> None:
    found = check(KINDS[name], COLUMNS[column], place)
    assert found.how != "-", found.differs
    assert not found.differs


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.nightly), 17])
def test_every_program_is_python(step: int) -> None:
    """All of them at night, every seventeenth (of each kind and in each place some) by day."""
    count = 0
    for kind in KINDS.values():
        for column in COLUMNS.values():
            place = PLACES[count % len(PLACES)]
            if not count % step and text.fits(kind, column, place):
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
