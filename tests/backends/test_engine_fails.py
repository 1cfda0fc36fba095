"""An engine that can't run, for whatever reason, costs speed: one notice, and right results."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNTIME = "lucerne._src.backends.cpu.runtime"

BROKEN = '''
import importlib.abc, importlib.util, sys, warnings

class Breaks(importlib.abc.MetaPathFinder):
    """Runs `break_(module)` behind the body of one module."""
    def find_spec(self, name, path, target=None):
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module
        def broken(module):
            run(module)
            break_(module)
        spec.loader.exec_module = broken
        return spec

def fail(error):
    def failing(*args, **kwargs):
        raise error
    return failing

sys.meta_path.insert(0, Breaks())
warnings.simplefilter("always")
'''

PROGRAM = """
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    import lucerne as torch
    torch.manual_seed(0)
    w = torch.full((3, 2), 0.5, requires_grad=True)
    x = torch.arange(6.0).reshape(2, 3)
    loss = (x @ w).tanh().sum() + (x + 1).sum()
    loss.backward()
    optimizer = torch.optim.SGD([w], lr=0.1)
    optimizer.step()
    step = torch.compile(lambda x: (x * 2 + 1).relu())
    compiled = step(x).tolist()
print([round(v, 5) for v in [loss.item(), *w.flatten().tolist()]], compiled)
said = [str(t.message) for t in told]
print(sum(SAYS in s for s in said), len(said), *{s[:120] for s in said})
"""

RIGHT = (
    "[24.81027, 0.49999, 0.49999, 0.48192, 0.48192, 0.46385, 0.46385] "
    "[[1.0, 3.0, 5.0], [7.0, 9.0, 11.0]]"
)

WHOLE = "using the slow 'reference' backend"
"""What is said once when nothing of the engine can be used."""

WAYS = {
    "llvmlite is not there": (
        f"{RUNTIME}.llvm",
        "module.folder = fail(RuntimeError('compiling kernels needs llvmlite'))",
    ),
    "LLVM refuses every module": (
        f"{RUNTIME}.llvm",
        "module.LLVM._emit = fail(module.CompileError('cannot select'))",
    ),
    "a symbol is not found": (
        f"{RUNTIME}.symbols",
        "module.resolve = fail(LookupError('no_storage'))",
    ),
    "no memory for code": (
        f"{RUNTIME}.link",
        "module.load = fail(PermissionError('mmap: operation not permitted'))",
    ),
    "Python's objects look different": (
        "lucerne._src.backends.cpu.native.native",
        "module.make_type = fail(AttributeError('no such slot'))",
    ),
    "a module of the engine does not load": (
        "lucerne._src.backends.cpu.rules.table",
        "raise TypeError('unsupported operand')",
    ),
}


def _run(module: str, how: str, says: str, cache: Path) -> list[str]:
    code = (
        f"MODULE, SAYS = {module!r}, {says!r}\n{BROKEN}\ndef break_(module):\n    {how}\n{PROGRAM}"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "LUCERNE_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("way", WAYS)
def test_falls_back_with_one_notice(way: str, tmp_path: Path) -> None:
    results, notices = _run(*WAYS[way], WHOLE, tmp_path)
    assert results == RIGHT
    assert notices.startswith("1 "), notices


def test_the_program_alone_has_these_results(tmp_path: Path) -> None:
    """With nothing broken there is no notice: the check above can fail."""
    results, notices = _run(f"{RUNTIME}.llvm", "pass", WHOLE, tmp_path)
    assert (results, notices) == (RIGHT, "0 0")


def test_one_kernel_that_cannot_be_made_runs_on_the_reference(tmp_path: Path) -> None:
    """LLVM takes all but products: that op alone is slow, and said once."""
    how = (
        "made = module._made\n"
        "    def some(key, payload):\n"
        "        if key[0] == 'gemm.micro':\n"
        "            raise module.NoCodeError('cannot select')\n"
        "        return made(key, payload)\n"
        "    module._made = some"
    )
    results, notices = _run(f"{RUNTIME}.code", how, "runs on the slow reference backend", tmp_path)
    assert results == RIGHT
    assert notices.startswith("1 1 "), notices
