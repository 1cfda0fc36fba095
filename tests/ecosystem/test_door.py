"""The door: `import torch` answered by Lucerne, where no torch is, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ecosystem import without_torch

START = "import lucerne.as_torch; lucerne.as_torch.install()\nimport torch, lucerne, sys\n"

# What is asked, in a program behind the door; each expression must be true.
TRUE = [
    "torch is lucerne",
    "torch.nn is lucerne.nn and sys.modules['torch.nn'] is lucerne.nn",
    "__import__('torch.nn.functional') is torch",
    "torch.optim is lucerne.optim and sys.modules['torch.optim.adam'] is lucerne.optim.adam",
    "torch.__name__ == 'torch' and torch.nn.__name__ == 'torch.nn'",
    "torch.__version__ == __import__('importlib.metadata').metadata.version('torch')",
    "torch.__version__ >= (2, 15)",
    "type(torch.ones(1)).__module__ == 'torch'",
    "torch.nn.Linear.__module__ == 'torch.nn.modules.linear'",
    "torch.nn.MultiheadAttention.__module__ == 'torch.nn.modules.activation'",
    "torch.nn.init.normal_.__module__ == 'torch.nn.init'",
    "torch.nn.Parameter.__module__ == 'torch.nn.parameter'",
    "torch.optim.Adam.__module__ == 'torch.optim.adam'",
    "torch.utils.data.DataLoader.__module__ == 'torch.utils.data.dataloader'",
    "isinstance(torch.nn.Linear(1, 1), lucerne.nn.Module)",
    "torch.distributed.is_available() is True",
    "not hasattr(torch, 'npu') and not hasattr(torch, 'hpu') and not hasattr(torch, 'musa')",
    "torch.jit.annotations.List is __import__('typing').List",
    "torch.distributed.fsdp.ShardingStrategy.FULL_SHARD.name == 'FULL_SHARD'",
    "torch.distributed.tensor.DTensor is torch.distributed._tensor.DTensor",
    "torch._dynamo.disable is torch.compiler.disable",
    "isinstance(torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), torch._C.DispatchKeySet)",
    "'ReduceOp' in dir(torch.distributed)",
    "__import__('functorch').vmap is torch.func.vmap",
    "not hasattr(__import__('functorch'), 'nonsense')",
    "torch._C._are_functorch_transforms_active() is False",
    "torch.vmap(lambda x: x + torch._C._are_functorch_transforms_active())(torch.zeros(1)) == 1",
    "torch.func.vjp(lambda x: x * torch._C._are_functorch_transforms_active(), torch.ones(1))[0]",
    "torch._C._is_torch_function_mode_enabled() is False",
    "torch._C._is_alias_of(a := torch.ones(3), a[1:]) and not torch._C._is_alias_of(a, a.clone())",
    "torch._dynamo.config.patch(verbose=True)(lambda: torch._dynamo.config.verbose)() is True",
    "torch._dynamo.config.verbose is False",
    "torch._utils._get_device_module('cpu') is torch.cpu",
    "__import__('importlib.util').util.find_spec('torch.nonsense') is None",
]
# A statement behind the door, the error it raises, and a part of its message.
RAISES = [
    ("torch.nonsense", "AttributeError", "module 'torch' has no attribute 'nonsense'"),
    ("import torch.nonsense", "ModuleNotFoundError", "No module named 'torch.nonsense'"),
    ("import torch.tiles", "ModuleNotFoundError", "No module named 'torch.tiles'"),
    ("import torch._src", "ModuleNotFoundError", "No module named 'torch._src'"),
    ("from torch.cuda import nonsense", "ImportError", "cannot import name 'nonsense'"),
    ("torch.distributed.device_mesh.DeviceMesh()", "TypeError", "'device_type' and 'mesh'"),
    ("torch.distributed.new_group()", "ValueError", "has not been initialized"),
    ("torch.onnx.dynamo_export(None)", "NotImplementedError", "by torch.onnx.export alone"),
    ("torch.ops.load_library('x.so')", "OSError", "loads no extension made for libtorch"),
    ("torch.cuda.Stream()", "AssertionError", "not compiled with CUDA"),
]
WHOLE = """
import pickle
model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
text = pickle.dumps(model)
assert b"torch.nn.modules.linear" in text and b"lucerne.nn" not in text
assert torch.equal(pickle.loads(text)[0].weight, model[0].weight)
compiled = torch.compile(model, fullgraph=True)
x = torch.randn(2, 3)
assert torch.allclose(compiled(x), model(x))
optimizer = torch.optim.AdamW(model.parameters())
compiled(x).sum().backward()
optimizer.step()
import typing
for module in (torch, torch.nn, torch.optim, torch.utils.data, torch.fx):
    for kind in filter(lambda x: isinstance(x, type), vars(module).values()):
        typing.get_type_hints(kind)  # transformers asks this of every model
from torch.fx import symbolic_trace
assert [n.op for n in symbolic_trace(model).graph.nodes][1] == "call_module"
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return without_torch.folder(tmp_path_factory.mktemp("site"))


def test_answers_and_refusals(packages: Path) -> None:
    lines = [START]
    for asked in TRUE:
        lines.append(f"if not ({asked}): print({asked!r})")
    for statement, error, part in RAISES:
        lines.append(f"try:\n    {statement}\n    print({statement!r}, 'raises nothing')")
        lines.append(
            f"except Exception as e:\n    right = type(e).__name__ == {error!r}"
            f"\n    if not (right and {part!r} in str(e)): print({statement!r}, repr(e))"
        )
    done = without_torch.run(packages, "-c", "\n".join(lines))
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_a_program_trains_compiles_and_pickles(packages: Path) -> None:
    done = without_torch.run(packages, "-c", START + WHOLE)
    assert (done.stderr, done.returncode) == ("", 0)


# arguments of `python -m lucerne.as_torch`, what is printed
RUNS = [
    (("script.py", "a", "b"), "['script.py', 'a', 'b'] torch __main__"),
    (("-m", "script", "a"), "script.py', 'a'] torch __main__"),
    (
        ("-c", "import sys, torch; print(sys.argv, torch.__name__, __name__)", "a"),
        "['-c', 'a'] torch __main__",
    ),
]


@pytest.mark.parametrize(("arguments", "printed"), RUNS)
def test_runner(packages: Path, arguments: tuple[str, ...], printed: str) -> None:
    (packages / "script.py").write_text(
        "import sys, torch\nprint(sys.argv, torch.__name__, __name__)\n"
    )
    done = without_torch.run(packages, "-m", "lucerne.as_torch", *arguments)
    assert printed in done.stdout, done.stderr


@pytest.mark.torch
def test_refuses_beside_a_real_torch(tmp_path: Path) -> None:
    packages = without_torch.folder(tmp_path / "site", torch=True)
    for program, reason in (
        ("", "is installed here"),
        ("import torch\n", "is loaded already"),
    ):
        done = without_torch.run(
            packages, "-c", program + "import lucerne.as_torch; lucerne.as_torch.install()"
        )
        assert reason in done.stderr
        assert "import lucerne as torch" in done.stderr


@pytest.mark.torch
def test_nothing_leaks_into_a_real_torch(tmp_path: Path) -> None:
    packages = without_torch.folder(tmp_path / "site", torch=True)
    program = (
        "import lucerne, torch\n"
        "assert torch is not lucerne and torch.nn is not lucerne.nn\n"
        "assert lucerne.Tensor.__module__ == 'lucerne' and lucerne.__name__ == 'lucerne'\n"
    )
    done = without_torch.run(packages, "-c", program)
    assert (done.stderr, done.returncode) == ("", 0)
