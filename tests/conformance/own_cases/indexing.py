"""Reading and writing through brackets, in every form."""

from typing import Any

import numpy as np

from tests.conformance.own_cases.tools import Row, Rows, after, attempt, counted, put, raises

# Every form of key, as a function of the module; the tensor is counted(4, 3, 5).
KEYS: dict[str, Row] = {
    "int": lambda t: 1,
    "negative int": lambda t: -1,
    "numpy int": lambda t: np.int64(2),
    "0-dim tensor": lambda t: t.tensor(2),
    "ints": lambda t: (1, 2, 3),
    "slice": lambda t: slice(1, 3),
    "slice with step": lambda t: (slice(None, None, 2), slice(2, 0)),
    "slice beyond": lambda t: (slice(2, 100), slice(-100, 2)),
    "slice by tensors": lambda t: slice(t.tensor(1), t.tensor(3)),
    "ellipsis": lambda t: ...,
    "ellipsis in the middle": lambda t: (0, ..., slice(1, 4)),
    "None": lambda t: None,
    "None between": lambda t: (slice(None), None, 1, None),
    "list": lambda t: [0, 2],
    "list in tuple": lambda t: (slice(None), [0, 2]),
    "empty list": lambda t: [],
    "index tensor": lambda t: t.tensor([3, 0, 0]),
    "negative indices": lambda t: t.tensor([-1, -4]),
    "2-dim index tensor": lambda t: t.tensor([[0, 1], [2, 3]]),
    "int32 index tensor": lambda t: t.tensor([1, 2], dtype=t.int32),
    "two index tensors": lambda t: (t.tensor([0, 3]), t.tensor([1, 2])),
    "broadcast index tensors": lambda t: (t.tensor([[0], [3]]), t.tensor([1, 2])),
    "index tensors apart": lambda t: (t.tensor([0, 3]), slice(None), t.tensor([1, 4])),
    "index tensors after slice": lambda t: (slice(1, 3), t.tensor([0, 2]), t.tensor([1, 4])),
    "index tensor and int": lambda t: (t.tensor([0, 3]), 1),
    "index tensor and None": lambda t: (None, t.tensor([0, 3]), None),
    "index tensor and ellipsis": lambda t: (..., t.tensor([4, 0])),
    "array": lambda t: np.array([2, 0]),
    "mask": lambda t: counted(t, 4, 3, 5) > 30,
    "mask of first dim": lambda t: t.tensor([True, False, True, False]),
    "mask of two dims": lambda t: counted(t, 4, 3) % 2 == 0,
    "mask in tuple": lambda t: (slice(1, 3), t.tensor([True, False, True])),
    "mask and index": lambda t: (t.tensor([True, False, True, False]), t.tensor([0, 2])),
    "list of bools": lambda t: [True, False, False, True],
    "True": lambda t: True,
    "False": lambda t: False,
    "empty mask": lambda t: t.zeros(4, dtype=t.bool),
    "uint8 mask": lambda t: t.tensor([1, 0, 0, 1], dtype=t.uint8),
    "empty tuple": lambda t: (),
}
# Keys that are refused.
BAD_KEYS: dict[str, Row] = {
    "out of range": lambda t: 4,
    "out of range below": lambda t: -5,
    "index tensor out of range": lambda t: t.tensor([0, 4]),
    "too many": lambda t: (0, 0, 0, 0),
    "float": lambda t: 1.5,
    "string": lambda t: "a",
    "negative step": lambda t: slice(None, None, -1),
    "mask of wrong shape": lambda t: t.tensor([True, False]),
    "float tensor": lambda t: t.tensor([0.0, 1.0]),
    "indices do not broadcast": lambda t: (t.tensor([0, 1]), t.tensor([0, 1, 2])),
}


def read(key: Row) -> Row:
    return lambda t: counted(t, 4, 3, 5)[key(t)]


def write_number(key: Row) -> Row:
    return lambda t: attempt(lambda: after(counted(t, 4, 3, 5), put(key(t), -1)))


def write_tensor(key: Row) -> Row:
    """Values of the very shape that reading gives: of the same dtype, then of another."""

    def row(t: Any) -> Any:
        x, y = counted(t, 4, 3, 5), counted(t, 4, 3, 5)
        value = -x[key(t)] - 1
        written = attempt(lambda: after(x, put(key(t), value)))
        return written, attempt(lambda: after(y, put(key(t), value.to(t.float64))))

    return row


def gradient(key: Row) -> Row:
    """Through reading, and through writing into a copy."""

    def row(t: Any) -> Any:
        x = counted(t, 4, 3, 5).requires_grad_()
        value = t.tensor(2.0, requires_grad=True)
        weight = counted(t, 4, 3, 5) + 1
        copy = x * 1
        written = attempt(lambda: after(copy, put(key(t), value)))
        loss = (x[key(t)] ** 2).sum() + (copy * weight).sum()
        return written, t.autograd.grad(loss, [x, value], allow_unused=True)

    return row


def refuse(key: Row) -> Row:
    return lambda t: (
        raises(lambda: counted(t, 4, 3, 5)[key(t)]),
        raises(lambda: after(counted(t, 4, 3, 5), put(key(t), 0))),
    )


def write_broadcast(t: Any) -> Any:
    x = t.zeros(3, 4)
    x[1:] = t.arange(4)
    x[:, 0] = t.tensor([7.0, 8.0, 9.0])
    x[0] = 2.5
    x[..., -1] = t.tensor([[1.0]])[0]
    return x


def write_casts(t: Any) -> Any:
    x = t.zeros(4, dtype=t.int64)
    x[0] = 2.9
    x[1] = True
    x[2:] = t.tensor([-1.5, 3.5])
    y = t.zeros(2, dtype=t.bool)
    y[0] = 5
    return x, y, attempt(lambda: after(t.zeros(1), put(0, 1j)))


def write_through_views(t: Any) -> Any:
    x = t.zeros(4, 4)
    x.t()[1] = 1.0
    x[1:3][:, 2:][0, 0] = 2.0
    x.view(-1)[-1] = 3.0
    x.diagonal()[1] = 4.0
    return x


def write_repeated(t: Any) -> Any:
    x = t.zeros(3)
    x[t.tensor([0, 0, 2])] += 1
    y = t.zeros(3)
    y.index_put_((t.tensor([0, 0, 2]),), t.ones(3), accumulate=True)
    return x, y


def augmented(t: Any) -> Any:
    x = counted(t, 3, 3)
    x[0] += 10
    x[:, 1] *= 2
    x[x > 5] -= 100
    x[[1, 2], [0, 0]] /= 4
    return x


def write_refusals(t: Any) -> Any:
    x = t.zeros(3, 4)
    return (
        raises(lambda: put(0, t.ones(3))(x), "expand"),
        raises(lambda: put(x > 1, t.ones(5))(x)),
        raises(lambda: put((t.tensor([0, 1]),), t.ones(3, 4))(x), "shape mismatch"),
        raises(lambda: put(0, "a")(x)),
        raises(lambda: put(0, [5, 6, 7, 8])(x)),
        x,
    )


def _forms() -> Rows:
    rows: Rows = {}
    for name, key in KEYS.items():
        rows[f"read {name}"] = read(key)
        rows[f"write a number at {name}"] = write_number(key)
        rows[f"write a tensor at {name}"] = write_tensor(key)
        rows[f"gradient at {name}"] = gradient(key)
    for name, key in BAD_KEYS.items():
        rows[f"refuse {name}"] = refuse(key)
    return rows


ROWS: Rows = {
    **_forms(),
    "write broadcasts": write_broadcast,
    "write casts": write_casts,
    "write through views": write_through_views,
    "write to repeated places": write_repeated,
    "augmented assignment": augmented,
    "write refusals": write_refusals,
    "0-dim": lambda t: (
        t.tensor(5)[()],
        t.tensor(5)[...],
        t.tensor(5)[None],
        raises(lambda: t.tensor(5)[0], "invalid index of a 0-dim tensor"),
        after(t.tensor(5), put((), 3)),
        after(t.tensor(5), put(..., 4)),
        t.tensor(5)[True],
    ),
    "views share, copies do not": lambda t: (
        lambda x: [
            x[key].untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
            for key in (0, slice(1), None, ..., [0], t.tensor([0]), x > 0)
        ]
    )(t.ones(2, 2)),
    "delete": lambda t: raises(lambda: t.ones(2).__delitem__(0)),
    "take_along_dim and gather": lambda t: (
        t.take_along_dim(counted(t, 2, 3), t.tensor([[0], [2]]), 1),
        t.gather(counted(t, 2, 3), 1, t.tensor([[0, 0], [2, 1]])),
    ),
    "where with one argument": lambda t: t.where(t.tensor([[0, 1], [1, 1]])),
    "nonzero as tuple": lambda t: (t.ones(2).nonzero(as_tuple=True), t.eye(2).nonzero()),
}
