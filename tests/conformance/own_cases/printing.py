"""How tensors look in a terminal, to the letter."""

from typing import Any

from tests.conformance.own_cases.tools import Row, Rows, counted, numbers


def shown(make: Row) -> Row:
    return lambda t: repr(make(t))


def with_options(**options: Any) -> Row:
    def row(t: Any) -> Any:
        t.set_printoptions(**options)
        try:
            return repr(numbers(t, 3, 4) * 100), repr(counted(t, 40))
        finally:
            t.set_printoptions(profile="default")

    return row


SHOWN: dict[str, Row] = {
    "floats": lambda t: t.tensor([1.5, -2.25, 3.0]),
    "whole floats": lambda t: t.tensor([1.0, 2.0]),
    "ints": lambda t: t.tensor([[1, -20], [300, 4]]),
    "bools": lambda t: t.tensor([True, False]),
    "0-dim": lambda t: t.tensor(3.14159),
    "0-dim int": lambda t: t.tensor(7),
    "empty": lambda t: t.ones(0),
    "empty of shape": lambda t: t.ones(2, 0),
    "wide range": lambda t: t.tensor([1e-8, 1.0, 1e8]),
    "small": lambda t: t.tensor([1e-5, 2e-5]),
    "nan and inf": lambda t: t.tensor([1.0, t.nan, -t.inf]),
    "float64": lambda t: t.tensor([1.0], dtype=t.float64),
    "float16": lambda t: t.tensor([1.5, 2.0], dtype=t.float16),
    "bfloat16": lambda t: t.tensor([1.5, 3.14], dtype=t.bfloat16),
    "int32": lambda t: t.tensor([1], dtype=t.int32),
    "complex": lambda t: t.tensor([1 + 2j, -0.5j]),
    "requires_grad": lambda t: t.tensor([1.0], requires_grad=True),
    "grad_fn": lambda t: t.tensor([1.0], requires_grad=True) * 2,
    "long": lambda t: t.arange(2000),
    "long line": lambda t: t.arange(30) * 1000,
    "3-dim": lambda t: counted(t, 2, 2, 3),
    "large": lambda t: t.zeros(40, 50, 2),
    "matrix": lambda t: numbers(t, 3, 4),
    "meta": lambda t: t.empty(2, device="meta"),
    "parameter": lambda t: t.nn.Parameter(t.ones(2)),
    "view": lambda t: counted(t, 2, 3).t()[1:],
}

ROWS: Rows = {
    **{name: shown(make) for name, make in SHOWN.items()},
    "precision": with_options(precision=2),
    "scientific": with_options(sci_mode=True),
    "threshold": with_options(threshold=5, edgeitems=2),
    "line width": with_options(linewidth=40),
    "str": lambda t: str(t.tensor([1.0, 2.0])),
    "module": lambda t: repr(
        t.nn.Sequential(t.nn.Linear(2, 3), t.nn.ReLU(inplace=True), t.nn.Conv2d(1, 2, 3, padding=1))
    ),
}
