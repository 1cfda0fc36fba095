"""The generator: torch's own CPU stream, bit for bit. Everything here is compared exactly."""

import functools
from typing import Any

from tests.conformance.own_cases.tools import FLOATS, Row, Rows, attempt, raises


def seeded(draw: Row, seed: int = 1234) -> Row:
    """Twice the same draw after a seed: the second shows where the stream stands."""

    def row(t: Any) -> Any:
        t.manual_seed(seed)
        return draw(t), draw(t), t.rand(2)

    return row


def states(t: Any) -> Any:
    t.manual_seed(7)
    t.randn(3)
    state = t.get_rng_state()
    first = t.randn(5)
    t.set_rng_state(state)
    return state, first, t.randn(5), t.initial_seed()


def generators(t: Any) -> Any:
    g, h = t.Generator(), t.Generator().manual_seed(5)
    g.manual_seed(5)
    a, b = t.rand(3, generator=g), t.randn(3, generator=h)
    h.set_state(g.get_state())
    return a, b, t.randperm(5, generator=g), t.randperm(5, generator=h), g.initial_seed()


def generator_is_apart(t: Any) -> Any:
    t.manual_seed(1)
    first = t.rand(1)
    t.rand(100, generator=t.Generator().manual_seed(3))
    return first, t.rand(1)


def forked(t: Any) -> Any:
    t.manual_seed(1)
    with t.random.fork_rng():
        inside = t.rand(2)
    return inside, t.rand(2)


def split(t: Any) -> Any:
    t.manual_seed(0)
    parts = t.utils.data.random_split(range(10), [6, 4])
    return [list(part.indices) for part in parts]


def loader(t: Any) -> Any:
    t.manual_seed(0)
    data = t.utils.data.TensorDataset(t.arange(10))
    batches = t.utils.data.DataLoader(data, batch_size=3, shuffle=True)
    return [batch[0] for batch in batches]


def layers(t: Any) -> Any:
    """Initial weights under a seed."""
    nn = t.nn
    t.manual_seed(3)
    made = [
        nn.Linear(3, 4),
        nn.Conv2d(2, 3, 3),
        nn.Embedding(5, 4),
        nn.LSTM(3, 4),
        nn.GRU(3, 4),
        nn.BatchNorm1d(3),
        nn.MultiheadAttention(4, 2),
        nn.Bilinear(2, 3, 2),
        nn.ConvTranspose1d(2, 3, 3),
    ]
    return [[p.detach() for p in layer.parameters()] for layer in made]


def inits(t: Any) -> Any:
    t.manual_seed(3)
    init = t.nn.init
    return {name: getattr(init, name)(t.empty(6, 5)) for name in INITS}


NORMAL_INITS = ("normal_", "xavier_normal_", "kaiming_normal_", "trunc_normal_")
INITS = (*NORMAL_INITS, "uniform_", "xavier_uniform_", "kaiming_uniform_", "ones_", "eye_")
DRAWS: dict[str, Row] = {
    "rand": lambda t: t.rand(2, 3),
    "rand of dtypes": lambda t: [t.rand(5, dtype=getattr(t, name)) for name in FLOATS],
    "randn small": lambda t: t.randn(7),
    "randn large": lambda t: t.randn(40),
    "randn of dtypes": lambda t: [t.randn(20, dtype=getattr(t, name)) for name in FLOATS],
    "randn small of dtypes": lambda t: [t.randn(3, dtype=getattr(t, name)) for name in FLOATS],
    "randn complex": lambda t: t.randn(20, dtype=t.complex64),
    "randn of no elements": lambda t: t.randn(0),
    "randint": lambda t: (t.randint(10, (5,)), t.randint(-3, 100, (2, 2))),
    "randint wide": lambda t: t.randint(0, 2**40, (5,)),
    "randint of dtype": lambda t: t.randint(0, 9, (5,), dtype=t.int32),
    "randperm": lambda t: (t.randperm(10), t.randperm(3, dtype=t.int32), t.randperm(0)),
    "uniform_": lambda t: (t.empty(20).uniform_(-1, 2), t.empty(3, 4).t().uniform_()),
    "normal_": lambda t: (t.empty(20).normal_(1, 2), t.empty(4, 8).t().normal_()),
    "normal of tensors": lambda t: t.normal(t.arange(1.0, 6.0), t.arange(1.0, 6.0)),
    "normal of numbers": lambda t: t.normal(2.0, 3.0, (17,)),
    "bernoulli": lambda t: t.bernoulli(t.linspace(0, 1, 20)),
    "bernoulli_": lambda t: (t.empty(20).bernoulli_(0.3), t.empty(5, dtype=t.bool).bernoulli_()),
    "exponential_": lambda t: t.empty(20).exponential_(2.0),
    "geometric_": lambda t: t.empty(20).geometric_(0.3),
    "log_normal_": lambda t: t.empty(20).log_normal_(0.1, 0.5),
    "cauchy_": lambda t: t.empty(20).cauchy_(),
    "random_": lambda t: (t.empty(5).random_(), t.empty(5, dtype=t.int64).random_(3, 9)),
    "random_ of dtypes": lambda t: [
        t.empty(4, dtype=getattr(t, name)).random_()
        for name in ("int64", "int32", "int16", "int8", "uint8", "bool", "float64")
    ],
    "poisson": lambda t: t.poisson(t.tensor([0.5, 3.0, 20.0, 100.0])),
    "binomial": lambda t: t.binomial(t.tensor([5.0, 100.0]), t.tensor([0.3, 0.6])),
    "multinomial": lambda t: t.multinomial(t.tensor([0.1, 0.2, 0.7]), 2),
    "multinomial with replacement": lambda t: t.multinomial(
        t.tensor([[0.1, 0.2, 0.7], [1.0, 1.0, 1.0]]), 4, replacement=True
    ),
    "dropout": lambda t: t.nn.functional.dropout(t.ones(4, 5), 0.4),
    "dropout of a view": lambda t: t.nn.functional.dropout(t.ones(4, 5).t(), 0.4),
    "dropout2d": lambda t: t.nn.functional.dropout2d(t.ones(2, 3, 2, 2), 0.5),
    "rand_like and randn_like": lambda t: (t.rand_like(t.ones(3)), t.randn_like(t.ones(20))),
    "randint_like": lambda t: t.randint_like(t.ones(3), 5),
    "rrelu in training": lambda t: t.nn.functional.rrelu(-t.ones(5), training=True),
    "gumbel": lambda t: t.empty(5).exponential_(),
}

ROWS: Rows = {
    **{name: seeded(draw) for name, draw in DRAWS.items()},
    **{
        f"rand after seed {seed}": seeded(lambda t: t.rand(3), seed)
        for seed in (0, 2**32 - 1, 2**40 + 7, -3)
    },
    "states": states,
    "generators": generators,
    "generators are apart": generator_is_apart,
    "fork_rng": forked,
    "random_split": split,
    "DataLoader shuffle": loader,
    "initial weights": layers,
    "nn.init": inits,
    "refusals": lambda t: (
        raises(lambda: t.randint(5, 5, (1,)), ""),
        raises(lambda: t.bernoulli(t.tensor([2.0])), ""),
        raises(lambda: t.multinomial(t.tensor([0.5, 0.5]), 3), ""),
        raises(lambda: t.empty(1).normal_(0, -1), ""),
        raises(lambda: t.randperm(-1), ""),
        attempt(functools.partial(t.rand, 2, dtype=t.int64)),
    ),
}
