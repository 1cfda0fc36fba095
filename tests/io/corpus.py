"""Objects as they occur in checkpoints, each made by torch or by Lucerne from the same lines."""

from __future__ import annotations

import collections
import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("uint8", "int8", "int16", "int32", "int64", "bool", "uint16", "uint32", "uint64")
EIGHT_BITS = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")


def every_dtype(t: Any) -> Any:
    made = {name: t.arange(6).to(getattr(t, name)) for name in (*FLOATS, *INTS)}
    made |= {name: t.arange(6).float().to(getattr(t, name)) for name in EIGHT_BITS}
    real, imag = t.arange(3.0), -t.arange(3.0)
    made["complex64"] = t.complex(real, imag)
    made["complex128"] = t.complex(real.double(), imag.double())
    return made


def complex_half(t: Any) -> Any:
    return t.arange(8).to(t.float16).view(t.uint8).view(t.complex32)


def special_values(t: Any) -> Any:
    return t.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-42, 3.4e38])


def shapes(t: Any) -> Any:
    empty = [t.zeros(0), t.zeros(3, 0, 2), t.tensor(5.0)]
    return [*empty, t.zeros(1, 2, 3, 4), t.zeros(2, 2, dtype=t.int64)]


def views(t: Any) -> Any:
    x = t.arange(24.0).reshape(4, 6)
    return {
        "base": x, "row": x[1], "column": x[:, 2], "transposed": x.t(), "step": x[::2, 1::3],
        "expanded": t.arange(3.0)[None].expand(4, 3), "offset": x.reshape(-1)[5:9],
    }  # fmt: skip


def channels_last(t: Any) -> Any:
    return t.arange(48.0).reshape(2, 2, 3, 4).to(memory_format=t.channels_last)


def tied(t: Any) -> Any:
    w = t.nn.Parameter(t.arange(6.0).reshape(2, 3))
    return {"encoder": w, "decoder": w, "same_memory": w.detach()}


def parameters(t: Any) -> Any:
    plain = t.nn.Parameter(t.arange(3.0))
    frozen = t.nn.Parameter(t.arange(3), requires_grad=False)
    marked = t.nn.Parameter(t.ones(2))
    marked.tag = "lora"
    return [plain, frozen, marked]


def buffers(t: Any) -> Any:
    marked = t.ones(2)
    marked.note = {"a": 1}
    return [t.nn.Buffer(t.arange(3.0)), marked]


def leaf_with_grad(t: Any) -> Any:
    return t.arange(3.0).requires_grad_()


def state_dict(t: Any) -> Any:
    made: Any = collections.OrderedDict()
    made["0.weight"] = t.arange(6.0).reshape(2, 3)
    made["0.bias"] = t.zeros(2)
    made["1.running_mean"] = t.ones(2)
    made["1.num_batches_tracked"] = t.tensor(7)
    made._metadata = collections.OrderedDict([("", {"version": 1}), ("1", {"version": 2})])
    return made


def optimizer_state(t: Any) -> Any:
    state = {
        n: {"step": t.tensor(3.0), "exp_avg": t.full((2,), 0.5), "exp_avg_sq": t.full((2,), 0.25)}
        for n in range(3)
    }
    group = {
        "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0, "amsgrad": False,
        "foreach": None, "initial_lr": t.tensor(0.1), "params": [0, 1, 2],
    }  # fmt: skip
    return {"state": state, "param_groups": [group]}


def scheduler_state(t: Any) -> Any:
    return {"last_epoch": 3, "_step_count": 4, "base_lrs": [0.1], "milestones":
            collections.Counter({10: 1, 20: 2}), "_last_lr": [0.05]}  # fmt: skip


def random_state(t: Any) -> Any:
    made = t.Generator()
    made.manual_seed(11)
    return {"cpu": made.get_state()}


def generator(t: Any) -> Any:
    return t.Generator().manual_seed(5)


def small_values(t: Any) -> Any:
    return [
        t.Size([2, 3]),
        t.bfloat16,
        t.float8_e5m2,
        t.device("cpu"),
        t.device("cuda", 1),
        t.strided,
    ]


def python_values(t: Any) -> Any:
    return {
        "none": None, "bools": (True, False), "ints": [0, 255, 256, -1, 2**31, -(2**63), 2**100],
        "floats": [0.1, -0.0, 1e308], "text": "gr\u00fc\u00df \U0001f600", "bytes": b"\x00\xff",
        "complex": 1 - 2j, "bytearray": bytearray(b"ab"), "nested": [[[(1, (2, 3, 4, 5))]]],
        "set": {1, 2}, (1, "key"): 3, 2.5: 4,
    }  # fmt: skip


def more_python(t: Any) -> Any:
    queue = collections.deque([1, t.ones(2)], maxlen=4)
    table: Any = collections.defaultdict(list, {"a": [1]})
    return [
        slice(1, None, 2),
        range(0, 9, 3),
        frozenset({3}),
        queue,
        table,
        collections.Counter("ab"),
    ]


def self_reference(t: Any) -> Any:
    made: list[Any] = [1]
    made.append(made)
    made.append({"up": made})
    return made


def numpy_values(t: Any) -> Any:
    return {
        "array": np.arange(6, dtype=np.float32).reshape(2, 3), "bool": np.array([True, False]),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)), "scalar": np.float64(0.1),
        "int": np.int64(-3), "text": np.array(["a", "bc"]), "dtype": np.dtype("int16"),
        "big": np.arange(3, dtype=">i4"), "empty": np.zeros((0, 2)), "complex": np.complex64(1j),
    }  # fmt: skip


def meta_tensors(t: Any) -> Any:
    return [t.empty(2, 3, device="meta"), t.nn.Parameter(t.empty(4, device="meta"))]


def many_small(t: Any) -> Any:
    return {f"layer.{n}.weight": t.full((n % 5 + 1,), float(n)) for n in range(300)}


def large(t: Any) -> Any:
    return {"w": t.arange(65536).to(t.int32), "step": 10}


CASES: dict[str, Callable[[Any], Any]] = {
    made.__name__: made
    for made in (
        every_dtype, complex_half, special_values, shapes, views, channels_last, tied, parameters,
        buffers, leaf_with_grad, state_dict, optimizer_state, scheduler_state, random_state,
        generator, small_values, python_values, more_python, self_reference, numpy_values,
        meta_tensors, many_small, large,
    )
}  # fmt: skip
UNSAFE_FOR_TORCH = {"generator", "more_python", "numpy_values"}
"""Cases that torch.load reads only with weights_only=False."""


# ---- comparing --------------------------------------------------------------------------------


def storage_bytes(x: Any) -> bytes:
    """All bytes under a tensor, of either framework."""
    held = x.untyped_storage()
    return ctypes.string_at(held.data_ptr(), held.nbytes()) if held.nbytes() else b""


def assert_same(got: Any, want: Any, path: str = "obj", seen: dict[int, int] | None = None) -> None:
    """Bit for bit: types, values, shapes, strides, offsets, storages, who shares with whom."""
    seen = {} if seen is None else seen
    kind = type(want).__name__
    assert type(got).__name__ == kind, f"{path}: {type(got)} instead of {type(want)}"
    if kind in ("Tensor", "Parameter", "list", "dict", "OrderedDict"):
        if id(want) in seen:
            assert seen[id(want)] == id(got), f"{path}: shared objects are not shared any more"
            return
        seen[id(want)] = id(got)
    if kind in ("Tensor", "Parameter"):
        _assert_same_tensor(got, want, path, seen)
    elif isinstance(want, dict):
        assert list(map(str, got)) == list(map(str, want)), path
        for a, b in zip(got.values(), want.values(), strict=True):
            assert_same(a, b, f"{path}[...]", seen)
        attributes = dict(getattr(want, "__dict__", {}))
        assert len(getattr(got, "__dict__", {})) == len(attributes), path
        for name, value in attributes.items():
            assert_same(getattr(got, name), value, f"{path}.{name}", seen)
    elif isinstance(want, (list, tuple, collections.deque)):
        assert len(got) == len(want), path
        for n, (a, b) in enumerate(zip(got, want, strict=True)):
            assert_same(a, b, f"{path}[{n}]", seen)
    elif isinstance(want, np.ndarray):
        native = want.dtype.newbyteorder("=")  # NumPy's own pickles lose the order, too
        assert got.dtype in (want.dtype, native), path
        assert got.shape == want.shape, path
        assert got.astype(native).tobytes() == want.astype(native).tobytes(), path
        assert got.strides == want.strides or not want.size, path
    elif kind == "Generator":
        assert_same(got.get_state(), want.get_state(), path, {})
    else:
        assert repr(got) == repr(want), path


def _assert_same_tensor(got: Any, want: Any, path: str, seen: dict[int, int]) -> None:
    for name in ("dtype", "device", "shape", "requires_grad", "layout"):
        assert str(getattr(got, name)) == str(getattr(want, name)), f"{path}.{name}"
    assert tuple(got.stride()) == tuple(want.stride()), path
    assert got.storage_offset() == want.storage_offset(), path
    if want.device.type != "meta":
        assert storage_bytes(got) == storage_bytes(want), f"{path}: other bits"
        mine, theirs = got.untyped_storage().data_ptr(), want.untyped_storage().data_ptr()
        if theirs:
            assert seen.setdefault(-theirs, mine) == mine, f"{path}: shares memory with others"
    attributes = {k: v for k, v in want.__dict__.items() if not k.startswith("_")}
    mine = {k: v for k, v in got.__dict__.items() if not k.startswith("_")}
    assert list(mine) == list(attributes), path
    for name, value in attributes.items():
        assert_same(mine[name], value, f"{path}.{name}", seen)
