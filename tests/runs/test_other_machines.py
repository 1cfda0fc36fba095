"""Names that programs set or ask because of other machines: GPUs, compilers, the network."""

import re
from pathlib import Path
from typing import Any

import pytest

import lucerne as lu
from lucerne._src.ir import dispatch
from lucerne._src.ops.nn.attention_choice import EVERY, choice


def test_settings_of_libraries_are_kept() -> None:
    cudnn: Any = lu.backends.cudnn
    before = cudnn.set_flags(_enabled=True, _deterministic=False)
    cudnn.benchmark = True
    assert lu.backends.cudnn.benchmark is True
    with cudnn.flags(enabled=False, deterministic=True):
        assert (cudnn.enabled, cudnn.benchmark, cudnn.deterministic) == (False, False, True)
    assert (cudnn.enabled, cudnn.benchmark, cudnn.deterministic) == (True, True, False)
    cudnn.set_flags(*before)
    lu.backends.cuda.matmul.allow_tf32 = True
    with lu.backends.mkldnn.flags(enabled=False):
        assert not lu.backends.mkldnn.enabled
    assert lu.backends.mkldnn.enabled
    lu.backends.mha.set_fastpath_enabled(False)
    assert not lu.backends.mha.get_fastpath_enabled()
    lu.backends.mha.set_fastpath_enabled(True)
    with pytest.raises(AttributeError, match=r"lucerne\.backends.*nonsense"):
        lu.backends.nonsense  # noqa: B018


def test_no_other_device_is_there() -> None:
    b = lu.backends
    modules = (lu.cuda, lu.mps, lu.xpu, lu.accelerator, b.mps, b.cudnn, b.mkl)
    assert not any(m.is_available() for m in (*modules, b.openmp, b.opt_einsum, b.mkldnn))
    assert not b.cuda.is_built()
    assert not b.mps.is_built()
    assert lu.accelerator.current_accelerator() is None
    assert lu.version.cuda is None
    for refused in (lu.mps.synchronize, lu.accelerator.synchronize):
        with pytest.raises(RuntimeError):
            refused()
    with pytest.raises(ValueError, match="process group has not been initialized"):
        lu.distributed.get_rank()


def test_choice_of_attention_kernels() -> None:
    cuda, specials = lu.backends.cuda, dispatch.state.special
    q = lu.rand(1, 2, 4, 8)
    want = lu.nn.functional.scaled_dot_product_attention(q, q, q)
    cuda.enable_flash_sdp(False)
    try:
        assert not cuda.flash_sdp_enabled()
        assert cuda.math_sdp_enabled()
        assert dispatch.state.special == specials + 1
        got = lu.nn.functional.scaled_dot_product_attention(q, q, q)
        lu.testing.assert_close(got, want)
        with (
            cuda.sdp_kernel(enable_flash=False, enable_math=False),
            pytest.raises(RuntimeError, match="No viable"),
        ):
            lu.nn.functional.scaled_dot_product_attention(q, q, q)
        assert cuda.math_sdp_enabled()
    finally:
        cuda.enable_flash_sdp(True)
    assert choice.enabled == EVERY
    assert dispatch.state.special == specials


def test_version_is_compared_by_numbers() -> None:
    v = lu.__version__
    assert isinstance(v, str)
    assert v > "2.9"
    assert v >= (2, 13)
    assert v < "2.16.0"
    assert v <= (3,)
    assert int(v.split(".")[0]) >= 2
    project = Path(__file__).parents[2] / "pyproject.toml"
    stated = re.search(r'^version = "(.+)"', project.read_text(encoding="utf-8"), re.M)
    assert stated is not None
    assert stated[1] == lu.version.lucerne


def test_decorators_leave_functions_alone() -> None:
    def f(x: Any) -> Any:
        return x + 1

    for same in (
        lu.compiler.allow_in_graph, lu.jit.script_if_tracing, lu.jit.ignore,
        lu.jit.ignore(drop=True), lu.jit.unused, lu.jit.export,
    ):  # fmt: skip
        assert same(f) is f
    assert lu.jit.wait(lu.jit.fork(f, 2)) == 3
    assert lu.jit.annotate(int, 3) == 3
    asked = (lu.compiler.is_compiling, lu.jit.is_scripting, lu.jit.is_tracing)
    assert not any(ask() for ask in asked)


REFUSED = [
    (lambda: lu.hub.load("owner/repository", "model"), "Clone the repository"),
    (lambda: lu.hub.list("owner/repository"), "file://"),
]


@pytest.mark.parametrize(("call", "says"), REFUSED)
def test_what_is_refused_says_what_to_do(call: Any, says: str) -> None:
    with pytest.raises(NotImplementedError, match=says):
        call()


def test_modules_as_functions() -> None:
    layer = lu.nn.Linear(2, 1)
    weight, bias = {"weight": lu.ones(1, 2)}, {"bias": lu.zeros(1)}
    assert lu.func.functional_call(layer, (weight, bias), lu.tensor([3.0, 4.0])).item() == 7
    with pytest.raises(ValueError, match="multiple dictionaries"):
        lu.func.functional_call(layer, (weight, weight), lu.ones(2))
    parameters, buffers = lu.func.stack_module_state([layer, lu.nn.Linear(2, 1)])
    assert parameters["weight"].shape == (2, 1, 2)
    assert parameters["weight"].is_leaf
    assert not buffers
    assert lu.func.vmap is lu.vmap
    assert lu.functional.einsum is lu.einsum


def test_variables_are_tensors() -> None:
    x = lu.ones(2, requires_grad=True) * 2
    v = lu.autograd.Variable(x, requires_grad=True)
    assert v.is_leaf
    assert v.requires_grad
    assert v.data_ptr() == x.data_ptr()
    assert isinstance(x, lu.autograd.Variable)
    with pytest.raises(TypeError, match="Variable data has to be a tensor, but got list"):
        lu.autograd.Variable([1.0])
