"""Schemas: read and written as torch reads and writes them; inferred as torch infers them."""

from collections.abc import Callable, Sequence
from typing import Any, List, Optional, Tuple, Union  # noqa: UP035 - torch's older spellings

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import lucerne  # noqa: E402
from lucerne._src.ir.schema import Argument, Schema, SchemaError, SchemaType, parse  # noqa: E402

pytestmark = pytest.mark.torch

TEXTS = [
    "lib::f(Tensor x) -> Tensor",
    "lib::f.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)",
    "lib::f(Tensor? x, Tensor[] xs, int[] ys, float z=1.5, bool b=True) -> (Tensor, Tensor)",
    'lib::f(Tensor x, int[2] size=1, str s="hi", Scalar n=2, float[]? o=None) -> Tensor[]',
    "lib::f(Tensor(a!) x, Tensor(b!) y) -> ()",
    "lib::f(ScalarType? dtype=None, Device? device=None) -> int",
    "lib::f(Tensor?[] x, *, Generator? generator=None) -> (Tensor values, Tensor indices)",
    "lib::f() -> ()",
    "lib::f(float x=2., float y=-0.5, int z=-3) -> float",
    "lib::f(Tensor x, SymInt n, SymInt[] sizes=[]) -> Tensor",
]


@pytest.mark.parametrize("text", TEXTS)
def test_schema_is_read_as_torch_reads_it(text: str) -> None:
    mine, theirs = parse(text), torch._C.parse_schema(text)
    assert mine.name == theirs.name
    assert [a.name for a in mine.arguments] == [a.name for a in theirs.arguments]
    assert [a.kwarg_only for a in mine.arguments] == [a.kwarg_only for a in theirs.arguments]
    assert [a.has_default_value() for a in mine.arguments] == [
        a.has_default_value() for a in theirs.arguments
    ]
    assert [a.is_write for a in mine.arguments] == [
        bool(a.alias_info and a.alias_info.is_write) for a in theirs.arguments
    ]
    assert len(mine.returns) == len(theirs.returns)
    assert mine.is_mutable == theirs.is_mutable


@pytest.mark.parametrize("text", TEXTS)
def test_schema_survives_being_written(text: str) -> None:
    assert parse(str(parse(text))) == parse(text)


_names = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True)
_types = st.builds(
    SchemaType,
    st.sampled_from(["Tensor", "int", "float", "bool", "str", "Scalar"]),
    st.booleans(),
    st.booleans(),
    st.none(),
    st.just(False),
)


@given(st.lists(_names, unique=True, max_size=5), st.data())
def test_any_schema_survives_being_written(names: list[str], data: st.DataObject) -> None:
    arguments = tuple(Argument(n, data.draw(_types)) for n in names)
    returns = tuple(Argument("", data.draw(_types)) for _ in range(data.draw(st.integers(0, 3))))
    schema = Schema("lib::f", "", arguments, returns)
    assert parse(str(schema)) == schema


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("lib::f(Tensr x) -> Tensor", "Tensr"),
        ("lib::f(Tensor x)", "the end"),
        ("lib::f Tensor x) -> Tensor", "Tensor"),
        ("lib::f(Tensor x -> Tensor", "->"),
        ("lib::f(Tensor) -> Tensor", ")"),
    ],
)
def test_wrong_schema_says_where(text: str, found: str) -> None:
    with pytest.raises(SchemaError) as error:
        parse(text)
    assert found in str(error.value)
    with pytest.raises(RuntimeError):
        torch._C.parse_schema(text)


def test_two_arguments_of_one_name_are_refused() -> None:
    with pytest.raises(SchemaError, match="two arguments are called 'x'"):
        parse("lib::f(Tensor x, Tensor x) -> Tensor")


def _functions(t: Any) -> list[tuple[Callable[..., Any], Any]]:
    """The same functions with the tensor type of either side; and what they mutate."""
    Tensor = t.Tensor

    def plain(x: Tensor, y: int, z: float = 1.5) -> Tensor: ...
    def named(x: Tensor, *, s: str = "hi", b: bool = True) -> Tensor: ...
    def kinds(d: t.dtype = t.float32, v: t.device = t.device("cpu")) -> Tensor: ...  # noqa: B008
    def maybe(x: Optional[Tensor], y: Optional[int] = None) -> Tensor: ...  # noqa: UP045
    def modern(x: Tensor | None, y: list[int], z: Sequence[float]) -> list[Tensor]: ...
    def lists(xs: List[Tensor], ys: Sequence[int]) -> Tuple[Tensor, int, float]: ...  # noqa: UP006
    def number(n: Union[int, float, bool] = 2) -> Tensor: ...  # noqa: UP007
    def nothing(x: Tensor) -> None: ...
    def texts(x: "Tensor", y: "int") -> "Tensor": ...
    def unannotated(x) -> Tensor: ...
    def no_return(x: Tensor): ...
    def star(x: Tensor, *args: int) -> Tensor: ...
    def strange(x: Tensor, y: dict) -> Tensor: ...
    def strange_return(x: Tensor) -> dict: ...
    def listed_default(x: Tensor, y: list[int] = [1]) -> Tensor: ...  # noqa: B006

    return [
        (plain, ()), (named, ()), (kinds, ()), (maybe, ()), (modern, ()), (lists, ()),
        (number, ()), (nothing, {"x"}), (nothing, "unknown"), (nothing, ("zz",)), (plain, {"y"}),
        (texts, ()), (unannotated, ()), (no_return, ()), (star, ()), (strange, ()),
        (strange_return, ()), (listed_default, ()),
    ]  # fmt: skip


def _inferred(t: Any, number: int) -> tuple[str, str]:
    function, mutates = _functions(t)[number]
    try:
        return "ok", t.library.infer_schema(function, mutates_args=mutates)
    except ValueError as error:
        # What is allowed is listed in each side's own words.
        return "error", str(error).partition(". The valid")[0].partition(". Make")[0].partition(
            ". Please file"
        )[0].partition(" Got func")[0]


@pytest.mark.parametrize("number", range(len(_functions(lucerne))))
def test_schema_is_inferred_as_torch_infers_it(number: int) -> None:
    assert _inferred(lucerne, number) == _inferred(torch, number)
