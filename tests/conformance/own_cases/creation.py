"""Making tensors: from Python numbers, from arrays, from other tensors, by size."""

import array
from typing import Any

import numpy as np

from tests.conformance.own_cases.tools import DTYPES, Rows, attempt, facts, raises


def shares_with_array(t: Any) -> Any:
    """from_numpy looks at the array's own memory, both ways."""
    source = np.arange(6.0).reshape(2, 3)
    x = t.from_numpy(source)
    x[0, 0] = 10.0
    source[1, 2] = 20.0
    return x, source


def as_tensor_shares(t: Any) -> Any:
    source = np.zeros(3, dtype=np.float32)
    same = t.as_tensor(source)
    copied = t.as_tensor(source, dtype=t.float64)
    fresh = t.tensor(source)
    source[0] = 5.0
    return same, copied, fresh


def as_tensor_keeps_tensor(t: Any) -> Any:
    x = t.ones(2)
    return t.as_tensor(x) is x, t.as_tensor(x, dtype=t.float64) is x, t.asarray(x) is x


def frombuffer_views_memory(t: Any) -> Any:
    memory = bytearray(range(16))
    x = t.frombuffer(memory, dtype=t.int32)
    head = t.frombuffer(memory, dtype=t.uint8, count=3, offset=2)
    memory[0] = 255
    return x, head


def default_dtype_is_used(t: Any) -> Any:
    before = t.get_default_dtype()
    t.set_default_dtype(t.float64)
    try:
        made = t.tensor(1.5), t.zeros(2), t.tensor(1j), t.arange(0, 1, 0.5), t.tensor(1)
    finally:
        t.set_default_dtype(before)
    return before, made


def numpy_of_each_dtype(t: Any) -> Any:
    kinds = [name for name in DTYPES if name != "bfloat16"] + ["uint16", "uint32", "uint64"]
    return {kind: t.from_numpy(np.ones((2, 2), dtype=kind)) for kind in kinds}


def scalars_of_each_dtype(t: Any) -> Any:
    return {name: t.tensor(1, dtype=getattr(t, name)) for name in DTYPES}


def casts_between_dtypes(t: Any) -> Any:
    values = [-1.5, 0.0, 2.7, 100.0]
    made = {}
    for a in DTYPES:
        source = t.tensor(values).to(getattr(t, a)) if a[0] != "u" else t.tensor([0, 2, 100])
        source = source.to(getattr(t, a))
        made[a] = {b: source.to(getattr(t, b)) for b in DTYPES if b != "uint8"}
    return made


ROWS: Rows = {
    "tensor of ints": lambda t: t.tensor([1, 2, 3]),
    "tensor of floats": lambda t: t.tensor([[1.0, 2.5], [3.0, 4.0]]),
    "tensor of mixed numbers": lambda t: t.tensor([1, 2.5, True]),
    "tensor of bools": lambda t: t.tensor([True, False]),
    "tensor of complex": lambda t: t.tensor([1 + 2j, 3.0]),
    "tensor of a number": lambda t: (t.tensor(3), t.tensor(2.5), t.tensor(True), t.tensor(1j)),
    "tensor of nothing": lambda t: (t.tensor([]), t.tensor([[]]), t.tensor([[], []])),
    "tensor of tuples": lambda t: t.tensor(((1, 2), (3, 4))),
    "tensor of a range": lambda t: t.tensor(range(4)),
    "tensor with dtype": lambda t: t.tensor([1, 2], dtype=t.bfloat16),
    "tensor of arrays": lambda t: t.tensor(np.arange(4, dtype=np.int16).reshape(2, 2)),
    "tensor of numpy scalars": lambda t: (t.tensor(np.float32(2)), t.tensor(np.int8(3))),
    "tensor of a list of 0-dim": lambda t: t.tensor([t.tensor(1.0), t.tensor(2.0)]),
    "tensor copies": lambda t: facts(t.tensor(np.ones((2, 3)).T)),
    "tensor requires_grad": lambda t: t.tensor([1.0], requires_grad=True),
    "tensor of large ints": lambda t: (t.tensor(2**40), t.tensor([2**62, -(2**62)])),
    "tensor of too large ints": lambda t: raises(lambda: t.tensor(2**70)),
    "tensor of ragged lists": lambda t: raises(
        lambda: t.tensor([[1, 2], [3]]), "expected sequence of length 2 at dim 1"
    ),
    "tensor of strings": lambda t: raises(lambda: t.tensor(["a"])),
    "tensor of ints requires_grad": lambda t: raises(
        lambda: t.tensor([1], requires_grad=True), "[Oo]nly Tensors of floating point"
    ),
    "new tensor by legacy class": lambda t: (
        t.Tensor([1, 2]),
        t.FloatTensor([1.0]),
        t.LongTensor([2]),
        t.Tensor(2, 3).shape,
    ),
    "from_numpy shares": shares_with_array,
    "from_numpy dtypes": numpy_of_each_dtype,
    "from_numpy strides": lambda t: facts(t.from_numpy(np.arange(12).reshape(3, 4).T[::2])),
    "from_numpy of negative strides": lambda t: raises(
        lambda: t.from_numpy(np.arange(3)[::-1]), "negative"
    ),
    "from_numpy of objects": lambda t: raises(lambda: t.from_numpy(np.array(["a"]))),
    "from_numpy of a list": lambda t: raises(lambda: t.from_numpy([1])),
    "as_tensor shares": as_tensor_shares,
    "as_tensor keeps a tensor": as_tensor_keeps_tensor,
    "as_tensor of lists": lambda t: t.as_tensor([[1, 2], [3, 4]], dtype=t.float32),
    "asarray copies on request": lambda t: t.asarray([1.0, 2.0], copy=True, requires_grad=True),
    "frombuffer": frombuffer_views_memory,
    "frombuffer of array": lambda t: t.frombuffer(array.array("d", [1.0, 2.0]), dtype=t.float64),
    "frombuffer of nothing": lambda t: raises(lambda: t.frombuffer(bytearray(), dtype=t.uint8)),
    "default dtype": default_dtype_is_used,
    "0-dim of every dtype": scalars_of_each_dtype,
    "cast between all dtypes": casts_between_dtypes,
    "zeros by several sizes": lambda t: (t.zeros(2, 3), t.zeros((2, 3)), t.zeros([]), t.zeros(0)),
    "zeros with a Size": lambda t: t.zeros(t.Size([2, 1])),
    "negative size": lambda t: raises(lambda: t.zeros(-1), "negative dimension"),
    "ones of dtype": lambda t: {name: t.ones(2, dtype=getattr(t, name)) for name in DTYPES},
    "full infers dtype": lambda t: (t.full((2,), 1), t.full((2,), 1.5), t.full((2,), True)),
    "arange forms": lambda t: (t.arange(3), t.arange(1, 4), t.arange(1, 2, 0.25), t.arange(3.0)),
    "arange downward": lambda t: (t.arange(5, 0, -2), t.arange(0, dtype=t.float16)),
    "arange wrong sign": lambda t: raises(lambda: t.arange(0, 5, -1)),
    "linspace of ints": lambda t: (t.linspace(0, 10, 5, dtype=t.int64), t.linspace(1, 1, 1)),
    "eye": lambda t: (t.eye(3), t.eye(2, 3, dtype=t.int64), t.eye(0)),
    "empty in channels_last": lambda t: t.empty(2, 3, 4, 5, memory_format=t.channels_last).stride(),
    "zeros_like keeps strides": lambda t: (
        t.zeros_like(t.ones(2, 3).t()),
        t.zeros_like(t.ones(2, 3).t(), memory_format=t.contiguous_format),
        t.ones_like(t.ones(2, 1).expand(2, 3)),
    ),
    "new_tensor": lambda t: (t.ones(2).new_tensor([1, 2]), t.ones(1).long().new_zeros(3)),
    "type_as": lambda t: t.ones(2).type_as(t.zeros(1, dtype=t.int16)),
    "type by name": lambda t: (t.ones(2).type("torch.DoubleTensor"), t.ones(2).type()),
    "to another's dtype": lambda t: t.ones(2).to(t.zeros(1, dtype=t.float64)),
    "to the same is self": lambda t: (lambda x: (x.to(t.float32) is x, x.float() is x))(t.ones(2)),
    "to copies on request": lambda t: (lambda x: x.to(t.float32, copy=True) is x)(t.ones(2)),
    "to a device": lambda t: t.ones(2).to("cpu").to(t.device("cpu"), t.float64),
    "meta device": lambda t: facts(t.empty(2, 3, device="meta").t() @ t.empty(2, 4, device="meta")),
    "Size is a tuple": lambda t: (
        t.Size([2, 3]) == (2, 3),
        t.Size([2, 3]).numel(),
        t.ones(2, 3).shape[1:],
        repr(t.Size([2])),
        t.Size([1, 2])[:1],
    ),
    "complex from parts": lambda t: (
        t.complex(t.ones(2), t.zeros(2)),
        t.polar(t.ones(1), t.ones(1)),
    ),
    "finfo and iinfo": lambda t: (
        [getattr(t.finfo(t.bfloat16), key) for key in ("eps", "max", "min", "tiny", "bits")],
        [getattr(t.finfo(t.float32), key) for key in ("eps", "max", "smallest_normal")],
        [getattr(t.iinfo(t.int16), key) for key in ("min", "max", "bits")],
    ),
    "dtype properties": lambda t: {
        name: (
            getattr(t, name).is_floating_point,
            getattr(t, name).is_complex,
            getattr(t, name).is_signed if name != "bool" else None,
            getattr(t, name).itemsize,
            repr(getattr(t, name)),
        )
        for name in DTYPES
    },
    "dtype aliases": lambda t: [
        t.float is t.float32,
        t.double is t.float64,
        t.half is t.float16,
        t.long is t.int64,
        t.int is t.int32,
        t.short is t.int16,
        t.cfloat is t.complex64,
    ],
    "device": lambda t: (
        repr(t.device("cpu")),
        str(t.device("cpu")),
        t.device("cpu") == t.ones(1).device,
        t.device("cuda", 1).index,
        attempt(lambda: t.device("nonsense")),
    ),
    "sparse_coo": lambda t: t.sparse_coo_tensor(
        t.tensor([[0, 1], [1, 0]]), t.tensor([1.0, 2.0]), (2, 2)
    ).to_dense(),
}
