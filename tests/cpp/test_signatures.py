"""Schemas with types and sizes: what they say, what they refuse. Nothing is compiled."""

import pytest

import lucerne as torch
from lucerne._src.ir.schema import SchemaError
from lucerne.utils.cpp_extension.signature import Signature

# the text, the schema it is
SCHEMAS = [
    ("(Tensor x, float k=2.0) -> Tensor", "t::f(Tensor x, float k=2.) -> Tensor"),
    ("(float32[n] x) -> float32[n]", "t::f(Tensor x) -> Tensor"),
    ("(float32[] x, int[] ns, int[2] m) -> ()", "t::f(Tensor x, int[] ns, int[2] m) -> ()"),
    ("(float32(a!)[..., n] x) -> ()", "t::f(Tensor(a!) x) -> ()"),
    ("(T[n, 3] x, Tensor[] ys) -> (T[n], int64[]) for T in float32, float64",
     "t::f(Tensor x, Tensor[] ys) -> (Tensor, Tensor)"),
    ("(A[n] x, B[n] y) -> B[n] for A in int32 for B in float32, float64",
     "t::f(Tensor x, Tensor y) -> Tensor"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "schema"), SCHEMAS)
def test_a_signature_is_a_schema(text: str, schema: str) -> None:
    assert str(Signature("t::f", text).schema) == schema


# the text, shapes and types of the arguments (or numbers), those of the results
CALLS = [
    ("(float32[n] x) -> float32[n]", [((3,), "float32")], [((3,), "float32")]),
    ("(T[..., n] x, T[m, n] w) -> T[..., m] for T in float32, float64",
     [((2, 5, 3), "float64"), ((4, 3), "float64")], [((2, 5, 4), "float64")]),
    ("(T[..., n] x, T[m, n] w) -> T[..., m] for T in float32, float64",
     [((3,), "float32"), ((4, 3), "float32")], [((4,), "float32")]),
    ("(float32[n] x, int k) -> (float32[(n - k) // 2 + 1], int64[2 * n % 5])",
     [((9,), "float32"), 3], [((4,), "float32"), ((3,), "int64")]),
    ("(float32[n, 2] x) -> float32[]", [((0, 2), "float32")], [((), "float32")]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "given", "results"), CALLS)
def test_results_follow_from_the_text(text: str, given: list, results: list) -> None:
    found = Signature("t::f", text).result_shapes(_values(given))
    assert found == [(shape, getattr(torch, name)) for shape, name in results]


def _values(given: list) -> list:
    return [g if isinstance(g, int) else torch.zeros(g[0], dtype=getattr(torch, g[1]))
            for g in given]  # fmt: skip


# the text, what is given, what the error says
WRONG_CALLS = [
    ("(float32[n] x) -> ()", [((3,), "float64")], "has to be torch.float32, but is torch.float64"),
    ("(T[n] x, T[n] y) -> () for T in float32, float64",
     [((3,), "float32"), ((3,), "float64")], "'y' has to be torch.float32, but is"),
    ("(T[n] x) -> () for T in float32, float64", [((3,), "int32")], "float32 or torch.float64"),
    ("(float32[n] x, float32[n] y) -> ()", [((3,), "float32"), ((4,), "float32")],
     r"'y' has to be float32\[n\] with n = 3, but its shape is \[4\]"),
    ("(float32[n] x) -> ()", [((3, 1), "float32")], r"shape is \[3, 1\]"),
    ("(float32[n, 3] x) -> ()", [((3, 4), "float32")], r"shape is \[3, 4\]"),
    ("(float32[n] x, int n) -> ()", [((3,), "float32"), 4], "'n' has to be 3, the size of that"),
    ("(int n, float32[n] x) -> ()", [4, ((3,), "float32")], "with n = 4"),
    ("(float32[..., n] x) -> ()", [((), "float32")], r"shape is \[\]"),
    ("(float32[..., n] x, float32[...] y) -> ()", [((2, 3), "float32"), ((3,), "float32")],
     r"with \.\.\. = \(2,\)"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "given", "says"), WRONG_CALLS)
def test_arguments_are_held_to_the_text(text: str, given: list, says: str) -> None:
    with pytest.raises(RuntimeError, match=says):
        Signature("t::f", text).result_shapes(_values(given))


# the text, what the error says
WRONG_TEXTS = [
    ("(float33[n] x) -> ()", "'float33' is none"),
    ("(T[n] x) -> T[n]", "for T in float32"),
    ("(T[n] x) -> () for T in float33", "'float33' is no type"),
    ("(float32[n + 1] x) -> ()", "sizes of arguments are numbers, names"),
    ("(float32[n, ...] x) -> ()", "sizes of arguments are numbers, names"),
    ("(float32[n] x) -> float32[m]", "no argument says what 'm'"),
    ("(float32[n] x, float k) -> float32[k]", "no argument says what 'k'"),
    ("(float32[n] x) -> float32[...]", "no argument says what `...`"),
    ("(float32[n] x) -> T[n] for T in float32", "no argument says what T of"),
    ("(float32[n] x) -> float32[n ** 2]", r"\+ - \* // and %"),
    ("(float32[n] x) -> float32[n n]", "is no size"),
    ("(float32[n] x) -> float32[f(n)]", r"\+ - \* // and %"),
    ("(float32[n] x) -> (float32[n], Tensor)", "either all results"),
    ("(Tensor x, ScalarType t) -> ()", "can't be given to C"),
    ("(Storage x) -> ()", "takes a Storage"),
    ("(float32[n] x -> ()", "It was read from"),
]


@pytest.mark.parametrize(("text", "says"), WRONG_TEXTS)
def test_what_is_no_signature_is_refused(text: str, says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        Signature("t::f", text)
