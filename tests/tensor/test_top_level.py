"""Functions and types of the top module that are no ops."""

import copy
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import lucerne
from lucerne._src.base.process import notices
from lucerne._src.tensor.functions import IN_PLACE

OPEN = {"logit_": 0.3, "acosh_": 1.5, "arccosh_": 1.5}


@pytest.mark.parametrize("name", [n for n in IN_PLACE if hasattr(lucerne.Tensor, n)])
def test_in_place_functions_write_their_input(name: str) -> None:
    function, method = getattr(lucerne, name), getattr(lucerne.Tensor, name)
    kind = lucerne.int64 if name in ("gcd_", "lcm_") else lucerne.float32
    shape = (2,) if name == "addmv_" else (2, 2)
    start = lucerne.full(shape, OPEN.get(name, 0.5)).to(kind)
    arguments = _arguments(name, start)
    a, b = start.clone(), start.clone()
    lucerne.manual_seed(0)
    assert function(a, *arguments) is a
    lucerne.manual_seed(0)
    method(b, *arguments)
    assert a.tolist() == b.tolist()


def _arguments(name: str, x: lucerne.Tensor) -> tuple[object, ...]:
    if name in ("gcd_", "lcm_", "xlogy_", "ldexp_", "resize_as_"):
        return (x.clone(),)
    if name == "addmv_":
        return (lucerne.ones(2, 3), lucerne.ones(3))
    if name == "index_put_":
        return ((lucerne.tensor([0]),), lucerne.tensor(3.0))
    more: dict[str, tuple[object, ...]] = {
        "clamp_": (0.0, 0.4), "clip_": (0.0, 0.4), "clamp_max_": (0.4,), "clamp_min_": (0.7,),
        "fill_": (3,), "threshold_": (1.0, 9.0),
    }  # fmt: skip
    return more.get(name, ())


def test_in_place_functions_refuse_numbers() -> None:
    with pytest.raises(TypeError, match="must be Tensor, not float"):
        lucerne.exp_(1.0)


def test_sym_functions_are_pythons() -> None:
    assert (lucerne.sym_int(2.7), lucerne.sym_int(-2.7)) == (2, -2)
    assert lucerne.sym_float(3) == 3.0
    assert lucerne.sym_max(1, 2.5) == 2.5
    assert isinstance(lucerne.sym_min(1, 2.5), float)
    assert lucerne.sym_not(False) is True
    assert lucerne.sym_ite(True, 1, 2) == 1
    assert lucerne.sym_sqrt(9) == 3
    assert lucerne.sym_sum([1, 2, 3]) == 6
    with pytest.raises(AssertionError, match="sym_ite"):
        lucerne.sym_ite(1, 2, 3)


def test_autocast_state() -> None:
    assert not lucerne.is_autocast_enabled()
    assert not lucerne.is_autocast_enabled("cpu")
    assert not lucerne.is_autocast_cpu_enabled()
    assert lucerne.get_autocast_cpu_dtype() is lucerne.bfloat16
    assert lucerne.get_autocast_gpu_dtype() is lucerne.float16
    lucerne.set_autocast_cpu_dtype(lucerne.float16)
    assert lucerne.get_autocast_dtype("cpu") is lucerne.float16
    lucerne.set_autocast_dtype("cpu", lucerne.bfloat16)
    lucerne.set_autocast_gpu_dtype(lucerne.float16)
    lucerne.set_autocast_enabled("cpu", False)
    lucerne.set_autocast_cpu_enabled(False)
    lucerne.set_autocast_enabled("cpu", True)
    assert lucerne.is_autocast_enabled("cpu")
    lucerne.set_autocast_enabled("cpu", False)
    assert not lucerne.is_autocast_enabled("cpu")
    before = lucerne.is_autocast_cache_enabled()
    lucerne.set_autocast_cache_enabled(not before)
    assert lucerne.is_autocast_cache_enabled() is not before
    lucerne.set_autocast_cache_enabled(before)
    lucerne.clear_autocast_cache()


def test_from_file_maps_memory(tmp_path: Path) -> None:
    path = str(tmp_path / "numbers")
    shared = lucerne.from_file(path, shared=True, size=3, dtype=lucerne.int32)
    shared.fill_(7)
    again = lucerne.from_file(path, shared=False, size=3, dtype=lucerne.int32)
    again[0] = 1
    assert lucerne.from_file(path, size=3, dtype=lucerne.int32).tolist() == [7, 7, 7]
    assert again.tolist() == [1, 7, 7]
    assert lucerne.from_file(path, size=0).shape == (0,)
    with pytest.raises(RuntimeError, match="holds 12 bytes"):
        lucerne.from_file(path, shared=False, size=100)


def test_dlpack_is_zero_copy_between_libraries() -> None:
    torch = pytest.importorskip("torch")
    ours = lucerne.arange(6).reshape(2, 3).t()
    theirs = torch.from_dlpack(ours)
    ours[0, 1] = 100
    assert theirs.tolist() == ours.tolist()
    assert theirs.stride() == ours.stride()
    back = lucerne.from_dlpack(theirs)
    theirs[2, 1] = -5
    assert back.tolist() == ours.tolist()
    assert back.data_ptr() == ours.data_ptr()
    array = np.from_dlpack(back)
    array[0, 0] = 77
    assert ours[0, 0].item() == 77
    capsule = lucerne.to_dlpack(lucerne.ones(2))
    assert lucerne.from_dlpack(capsule).tolist() == [1, 1]
    copied = lucerne.from_dlpack(theirs, copy=True)
    theirs[0, 0] = 0
    assert copied[0, 0].item() == 77


def test_numpy_keeps_memory_alive() -> None:
    array = lucerne.arange(1000).numpy()
    assert array.sum() == 499500
    tensor = lucerne.from_numpy(np.arange(1000))
    assert tensor.sum().item() == 499500


def test_legacy_types() -> None:
    for name, dtype in (
        ("FloatTensor", lucerne.float32), ("DoubleTensor", lucerne.float64),
        ("HalfTensor", lucerne.float16), ("BFloat16Tensor", lucerne.bfloat16),
        ("ByteTensor", lucerne.uint8), ("CharTensor", lucerne.int8),
        ("ShortTensor", lucerne.int16), ("IntTensor", lucerne.int32),
        ("LongTensor", lucerne.int64), ("BoolTensor", lucerne.bool),
    ):  # fmt: skip
        kind = getattr(lucerne, name)
        made = kind([1, 0])
        assert made.dtype is dtype is kind.dtype
        assert isinstance(made, kind)
        assert made.type() == f"torch.{name}"
        assert not isinstance(lucerne.zeros(1, dtype=lucerne.complex64), kind)


def test_typed_storages() -> None:
    for name in (
        "FloatStorage", "DoubleStorage", "HalfStorage", "BFloat16Storage", "ByteStorage",
        "CharStorage", "ShortStorage", "IntStorage", "LongStorage", "BoolStorage",
        "ComplexFloatStorage", "ComplexDoubleStorage",
    ):  # fmt: skip
        kind = getattr(lucerne, name)
        made = kind([1, 0])
        assert isinstance(made, kind)
        assert isinstance(made, lucerne.TypedStorage)
        assert made.type() == f"torch.{name}"
        assert lucerne.is_storage(made)
    x = lucerne.arange(3)
    held = x[1:].storage()
    held[2] = 9
    assert x.tolist() == [0, 1, 9]
    assert held.untyped().data_ptr() == x.untyped_storage().data_ptr()
    assert copy.deepcopy(held).tolist() == [0, 1, 9]
    assert pickle.loads(pickle.dumps(held)).tolist() == [0, 1, 9]
    held.resize_(2)
    assert len(held.fill_(4)) == 2
    assert held.to(lucerne.float32).tolist() == [4, 4]
    assert lucerne.Storage([1.5]).copy_([2.5]).tolist() == [2.5]
    with pytest.raises(RuntimeError, match="slices"):
        held[0:1]


def test_build_facts_and_exceptions() -> None:
    assert lucerne.has_lapack
    assert lucerne.has_spectral
    assert not lucerne.has_mkl
    assert not lucerne.has_openmp
    assert issubclass(lucerne.OutOfMemoryError, RuntimeError)
    assert issubclass(lucerne.AcceleratorError, RuntimeError)
    assert lucerne.legacy_contiguous_format is lucerne.contiguous_format
    assert lucerne.bit is lucerne.uint1


def test_types_and_return_types() -> None:
    assert isinstance(3, lucerne.types.Number)
    assert isinstance("cpu", lucerne.types.Device)
    assert isinstance(lucerne.ones(1).untyped_storage(), lucerne.types.Storage)
    assert lucerne.types.FileLike is not None
    assert isinstance(lucerne.ones(2).max(0), lucerne.return_types.max)


def test_pickles_refuse_bad_geometry() -> None:
    x = lucerne.arange(4)
    rebuild, arguments = x.__reduce_ex__(4)[:2]
    cls, storage, _, dtype, shape, strides, grad = arguments
    with pytest.raises(ValueError, match="exceeds"):
        rebuild(cls, storage, 2, dtype, shape, strides, grad)
    with pytest.raises(ValueError, match="bad geometry"):
        rebuild(cls, storage, -1, dtype, shape, strides, grad)


def test_pickled_tensors_share_memory_again() -> None:
    x = lucerne.zeros(3)
    a, b = pickle.loads(pickle.dumps((x, x[1:])))
    a[1] = 7
    assert b.tolist() == [7, 0]


def test_names_are_mostly_there() -> None:
    data = Path(__file__).parents[1] / "conformance" / "data" / "torch_api.json"
    lists = json.loads(data.read_text(encoding="utf-8"))
    for title, home, goal in (
        ("torch", lucerne, 0.80), ("torch.Tensor", lucerne.Tensor, 0.88),
        ("torch.linalg", lucerne.linalg, 0.85), ("torch.overrides", lucerne.overrides, 0.75),
        ("torch.testing", lucerne.testing, 0.75), ("torch.types", lucerne.types, 1.0),
    ):  # fmt: skip
        there = [name for name in lists[title] if hasattr(home, name)]
        assert len(there) / len(lists[title]) >= goal, title


def test_members_of_other_devices() -> None:
    x = lucerne.ones(2)
    assert x.record_stream(None) is None
    for name in ("cuda", "xpu", "ipu", "mtia"):
        with pytest.raises(RuntimeError, match="no backend serves device"):
            getattr(x, name)()
    supported = lucerne.set_flush_denormal(True)
    assert lucerne.set_flush_denormal(False) is supported
    before = lucerne.get_num_interop_threads()
    notices.forget()
    with pytest.warns(UserWarning, match="of no effect"):
        lucerne.set_num_interop_threads(before)
    assert lucerne.get_num_interop_threads() == before
    assert lucerne.get_device_module() is lucerne.get_device_module("cpu")
