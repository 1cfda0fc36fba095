"""What a tensor says of itself, and how its numbers leave it."""

import copy
import pickle
from typing import Any

import numpy as np

from tests.conformance.own_cases.tools import Rows, counted, facts, numbers, raises


def numpy_shares(t: Any) -> Any:
    x = t.zeros(3)
    x.numpy()[0] = 7.0
    return x


def sizes(t: Any) -> Any:
    x = counted(t, 2, 3, 4)
    return {
        "numel": x.numel(),
        "size": x.size(),
        "size of one": x.size(-1),
        "shape": x.shape,
        "dim": x.dim(),
        "ndim": x.ndim,
        "ndimension": x.ndimension(),
        "nelement": x.nelement(),
        "stride": x.stride(),
        "stride of one": x.stride(1),
        "element_size": x.element_size(),
        "nbytes": x.nbytes,
        "itemsize": x.itemsize,
        "is_contiguous": x.is_contiguous(),
        "storage": x.untyped_storage().nbytes(),
    }


def views(t: Any) -> Any:
    x = counted(t, 4, 6)
    made = {
        "t": x.t(),
        "slice": x[1:3, ::2],
        "select": x[2],
        "expand": x[:, :1].expand(4, 5),
        "unfold": x.unfold(1, 3, 2),
        "diagonal": x.diagonal(),
        "permute": x.view(2, 2, 6).permute(2, 0, 1),
        "squeeze": x[:, :1].squeeze(1),
        "as_strided": x.as_strided((2, 2), (1, 6), 3),
        "narrow": x.narrow(1, 2, 3),
        "flat": x.view(-1),
        "none": x[:, None],
    }
    return {name: (facts(view), view) for name, view in made.items()}


def copies(t: Any) -> Any:
    x = numbers(t, 2, 3, grad=True)
    shallow, deep = copy.copy(x), copy.deepcopy(x)
    with t.no_grad():
        x[0, 0] = 100.0
    return shallow.detach(), deep.detach(), deep.requires_grad, deep.is_leaf


def truths(t: Any) -> Any:
    return (
        bool(t.tensor(0.0)),
        bool(t.tensor([2])),
        raises(lambda: bool(t.ones(2)), "Boolean value of Tensor with more than one value"),
        raises(lambda: bool(t.ones(0)), "ambiguous"),
        t.tensor(1.0) in t.arange(3),
        not t.tensor([[0]]),
    )


def own_attribute(t: Any) -> Any:
    x = t.ones(1)
    x.note = 5
    return x.note, hasattr(x.clone(), "note")


def memory_formats(t: Any) -> Any:
    x = counted(t, 2, 3, 4, 5)
    last = x.to(memory_format=t.channels_last)
    return (
        last,
        last.is_contiguous(),
        last.is_contiguous(memory_format=t.channels_last),
        (last + 1).stride(),
        last.contiguous().stride(),
        last.clone().stride(),
        t.zeros_like(last).stride(),
    )


ROWS: Rows = {
    "sizes": sizes,
    "views": views,
    "copy and deepcopy": copies,
    "truth": truths,
    "memory formats": memory_formats,
    "tolist": lambda t: (t.tensor(2).tolist(), t.tensor([[1.5], [2.0]]).tolist(), []),
    "tolist of dtypes": lambda t: [
        t.tensor([1, 0]).to(kind).tolist()
        for kind in (t.bool, t.int8, t.bfloat16, t.float64, t.complex64)
    ],
    "item": lambda t: (t.tensor([[3]]).item(), t.tensor(1.5).item(), t.tensor(True).item()),
    "item of several": lambda t: raises(lambda: t.ones(2).item(), "a Tensor with 2 elements"),
    "numpy": lambda t: counted(t, 2, 3).t().numpy(),
    "numpy of 0-dim": lambda t: t.tensor(2).numpy(),
    "numpy of empty": lambda t: t.ones(0, 3).numpy(),
    "numpy shares": numpy_shares,
    "numpy of grad": lambda t: raises(lambda: numbers(t, 2, grad=True).numpy(), "requires grad"),
    "numpy of bfloat16": lambda t: raises(lambda: t.ones(1, dtype=t.bfloat16).numpy()),
    "numpy forced": lambda t: numbers(t, 2, grad=True).numpy(force=True),
    "np.asarray": lambda t: np.asarray(t.tensor([1, 2])),
    "np.array as another dtype": lambda t: np.array(t.ones(2), dtype=np.float64),
    "numpy function": lambda t: float(np.sum(t.ones(3).numpy())),
    "len": lambda t: (len(t.ones(3, 2)), raises(lambda: len(t.tensor(1)), "0-d")),
    "iteration": lambda t: [list(counted(t, 2, 2)), [x.item() for x in t.arange(3)]],
    "iteration over 0-dim": lambda t: raises(lambda: list(t.tensor(1)), "0-d tensor"),
    "unpacking": lambda t: (lambda a, b: (b, a))(*counted(t, 2, 3)),
    "float, int, complex, index": lambda t: (
        float(t.tensor(2)),
        int(t.tensor(2.7)),
        complex(t.tensor(1.5)),
        [10, 20, 30][t.tensor(1)],
        round(float(t.tensor(2.5))),
    ),
    "index of float": lambda t: raises(lambda: [1][t.tensor(0.0)]),
    "format": lambda t: (f"{t.tensor(1.23456):.2f}", f"{t.tensor(3)}", f"{t.tensor(3):>4d}"),
    "hash and identity": lambda t: (lambda x: ({x: 1}[x], x in [x], hash(x) == id(x)))(t.ones(2)),
    "comparison operators": lambda t: (
        counted(t, 3) > 1,
        counted(t, 3) == t.tensor([0, 1, 5]),
        counted(t, 3) != 1,
        (t.ones(2) == None),  # noqa: E711
    ),
    "arithmetic operators": lambda t: [
        2 - counted(t, 3),
        1 / (counted(t, 3) + 1),
        counted(t, 3) // 2,
        counted(t, 3) % 2,
        2 ** counted(t, 3),
        -counted(t, 3),
        +counted(t, 3),
        abs(-counted(t, 3)),
        counted(t, 2, 2) @ counted(t, 2, 2),
        divmod(7, 2),
    ],
    "bit operators": lambda t: [
        t.tensor([5, 3]) & 1,
        t.tensor([5, 3]) | 8,
        t.tensor([5, 3]) ^ 1,
        ~t.tensor([5, 3]),
        ~t.tensor([True]),
        t.tensor([5]) << 2,
        t.tensor([5]) >> 1,
        t.tensor([True]) & t.tensor([False]),
    ],
    "operators refuse": lambda t: [
        raises(lambda: t.ones(2) + "a"),
        raises(lambda: t.ones(2) & t.ones(2)),
        raises(lambda: t.ones(2) + t.ones(3), r"size of tensor a \(2\) must match"),
        raises(lambda: t.ones(2, 3) @ t.ones(2, 3)),
        raises(lambda: -t.tensor([True])),
        raises(lambda: t.tensor([True]) - t.tensor([True])),
    ],
    "operators with arrays": lambda t: (t.ones(2) + np.float64(1), t.ones(2) * np.ones(2)),
    "is_tensor and friends": lambda t: (
        t.is_tensor(t.ones(1)),
        t.is_tensor(1),
        t.is_floating_point(t.ones(1)),
        t.is_complex(t.ones(1)),
        t.ones(1).is_signed(),
        t.is_nonzero(t.tensor(1)),
        t.numel(t.ones(2, 3)),
    ),
    "equal and allclose": lambda t: (
        t.equal(t.ones(2), t.ones(2)),
        t.equal(t.ones(2), t.ones(3)),
        t.allclose(t.ones(2), t.ones(2) + 1e-9),
        t.allclose(t.tensor([t.nan]), t.tensor([t.nan]), equal_nan=True),
    ),
    "data_ptr and storage_offset": lambda t: (
        lambda x: (x[1:].data_ptr() - x.data_ptr(), x[1:].storage_offset())
    )(t.zeros(4)),
    "is_set_to and same storage": lambda t: (
        lambda x: (x.is_set_to(x[:]), x.is_set_to(x[1:]), x.is_set_to(x.clone()))
    )(t.zeros(4)),
    "view of dtype": lambda t: (
        t.tensor([1.0, -2.0]).view(t.int32),
        t.tensor([[1, 2]], dtype=t.int64).view(t.int32),
        t.tensor([[1, 2, 3, 4]], dtype=t.uint8).view(t.int16),
    ),
    "view refuses": lambda t: (
        raises(lambda: counted(t, 2, 3).t().view(-1), "view size is not compatible"),
        raises(lambda: counted(t, 2, 3).view(4), "shape '\\[4\\]' is invalid for input of size 6"),
        raises(lambda: t.ones(3, dtype=t.uint8).view(t.int16)),
    ),
    "real and imag are views": lambda t: (lambda x: (x.real, x.imag, x.real.add_(1) is None, x))(
        t.tensor([1 + 2j, 3 - 1j])
    ),
    "conj is lazy but equal": lambda t: (
        t.tensor([1 + 2j]).conj().resolve_conj(),
        t.tensor([1 + 2j]).conj() * 1j,
        t.tensor([1 + 2j]).conj().imag,
    ),
    "pickle": lambda t: pickle.loads(pickle.dumps(counted(t, 2, 3).t())),
    "attribute of its own": own_attribute,
    "names that are gone": lambda t: raises(lambda: t.ones(1).no_such_attribute, "no_such"),
    "T, mT, H of shapes": lambda t: (
        counted(t, 2, 3).T,
        counted(t, 2, 3, 4).mT,
        counted(t, 2, 3).H,
        raises(lambda: t.ones(2).mT),
    ),
    "split, chunk, unbind": lambda t: (
        counted(t, 5).split(2),
        counted(t, 5).chunk(3),
        counted(t, 2, 2).unbind(1),
        t.tensor_split(counted(t, 7), (2, 5)),
    ),
    "result types by name": lambda t: [
        type(t.max(t.ones(2, 2), 0)).__name__,
        t.max(counted(t, 2, 2), 0).values,
        counted(t, 2, 2).sort(0, descending=True).indices,
        t.topk(counted(t, 4), 2).indices,
    ],
}
