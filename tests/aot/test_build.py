"""Built programs give what the exported ones give, touch no other memory, and refuse in words."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

import lucerne as torch
from lucerne import cli, nn
from lucerne._src.backends.contract.machines import MACHINES
from lucerne._src.backends.cpu.aot.layout import is_of_c
from lucerne._src.backends.cpu.emit.builder import I64, Module
from lucerne.export import BuiltProgram, ExportedProgram, ExportError, build, export, save
from lucerne.export.aot import link
from tests.aot.loaded import Loaded
from tests.aot.models import exported

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None,
    reason="a built program is linked and called: a C compiler is needed",
)
MOST_CODE = 300 << 10


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> tuple[ExportedProgram, BuiltProgram]:
    """Two sizes of a small GPT, weights inside."""
    program, sizes = exported("gpt")
    assert sizes is not None
    folder = tmp_path_factory.mktemp("gpt")
    return program, build(program, folder, name="gpt", sizes=sizes[1:3])


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> tuple[ExportedProgram, BuiltProgram]:
    """With weights in a file."""
    program, sizes = exported("mlp")
    folder = tmp_path_factory.mktemp("mlp")
    return program, build(program, folder, name="mlp", sizes=sizes, weights="file")


def _load(made: BuiltProgram) -> Loaded:
    assert made.library is not None
    path = made.folder / f"{made.name}.safetensors"
    found = Loaded(made.library, made.name, path.read_bytes() if path.exists() else None)
    assert found.status == 0, found.error(found.status)
    return found


@pytest.mark.parametrize("at_end", [True, False])
def test_results_are_the_programs(gpt: Any, at_end: bool) -> None:
    program, made = gpt
    loaded = _load(made)
    context = loaded.context()
    for b, t in ((1, 16), (2, 32), (1, 16)):  # and back: the context is brought to other sizes
        ids = torch.randint(0, 100, (b, t))
        out = torch.full((b, t, 100), float("nan"))
        assert loaded.run(context, (b, t), [ids], [out], at_end=at_end) == 0
        torch.testing.assert_close(out, program.module()(ids), rtol=1e-5, atol=1e-5)


def test_the_example_was_run_and_agrees(gpt: Any) -> None:
    assert gpt[1].differences[-1] == "right"
    assert len(gpt[1].differences) == 3


def test_the_example_notices_what_is_wrong(gpt: Any, tmp_path: Path) -> None:
    made = gpt[1]
    shutil.copytree(made.folder, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "gpt_example.bin"
    data = bytearray(path.read_bytes())
    data[-3] ^= 0x40  # the exponent of a result
    path.write_bytes(data)
    done = subprocess.run(["./gpt_example"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout.endswith("WRONG\n")


def test_only_the_c_library_is_called(gpt: Any) -> None:
    made = gpt[1]
    listed = subprocess.run(
        ["nm", "-u", str(made.folder / "gpt.o")], capture_output=True, text=True, check=True
    )
    names = re.findall(r"U (\w+)", listed.stdout)
    assert names
    assert all(is_of_c(n) for n in names if n != "gpt_weights"), names
    assert made.facts["code_bytes"] <= MOST_CODE


def test_two_contexts_in_two_threads(gpt: Any) -> None:
    program, made = gpt
    loaded = _load(made)
    loaded.function("set_threads")(2)
    ids = [torch.randint(0, 100, (2, 32)) for _ in range(2)]
    outs = [torch.zeros(2, 32, 100) for _ in range(2)]
    wrong: list[int] = []

    def work(k: int) -> None:
        context = loaded.context()
        want = program.module()(ids[k])
        for _ in range(20):
            outs[k].zero_()
            status = loaded.run(context, (2, 32), [ids[k]], [outs[k]])
            if status or (outs[k] - want).abs().max() > 1e-5:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_errors_have_numbers_and_texts(gpt: Any) -> None:
    program, made = gpt
    loaded = _load(made)
    context, out = loaded.context(), torch.zeros(1, 16, 100)
    assert loaded.error(loaded.run(context, (1, 17), [out], [out])).endswith("for these sizes")
    assert loaded.error(loaded.init(loaded.model.address + 8)).endswith("aligned to 64 bytes")
    assert loaded.error(0) == "no error"
    ids = torch.randint(0, 100, (1, 16))
    ids[0, 3] = 100
    status = loaded.run(context, (1, 16), [ids], [out])
    assert status > 0
    assert re.search(r"out of its range \(.*models.py:\d+ in Transformer", loaded.error(status))
    ids[0, 3] = 1  # and the context is as good as before
    assert loaded.run(context, (1, 16), [ids], [out]) == 0
    torch.testing.assert_close(out, program.module()(ids), rtol=1e-5, atol=1e-5)


def test_weights_in_a_file_may_be_others(mlp: Any) -> None:
    program, made = mlp
    x, out = torch.randn(7, 96), torch.zeros(7, 10)
    loaded = _load(made)
    assert loaded.run(loaded.context(), (7,), [x], [out]) == 0
    torch.testing.assert_close(out, program.module()(x), rtol=1e-5, atol=1e-5)
    data = bytearray((made.folder / "mlp.safetensors").read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    data[start:] = bytes(len(data) - start)  # all weights zero: the softmax is even
    zeros = Loaded(made.library, "mlp", bytes(data))
    assert zeros.run(zeros.context(), (7,), [x], [out]) == 0
    torch.testing.assert_close(out, torch.full((7, 10), 0.1))
    data[20] ^= 1
    other = Loaded(made.library, "mlp", bytes(data))
    assert "another header" in other.error(other.status)
    none = Loaded(made.library, "mlp")
    assert "weights are expected" in none.error(none.status)


class _Noisy(nn.Module):
    def forward(self, x: Any) -> Any:
        return nn.functional.dropout(x, 0.5, training=True)


class _Factors(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.linalg.svdvals(x)


class _View(nn.Module):
    def forward(self, x: Any) -> Any:
        return (x + 1).t()


REFUSED = [
    (_Noisy(), "draw .*test_build.py:[0-9]+ in _Noisy.forward.*no machine code"),
    (_Factors(), "test_build.py:[0-9]+ in _Factors.forward.*calls lapack_"),
    (_View(), "result 0 is a view"),
    (nn.BatchNorm1d(3), "writes to b_num_batches_tracked"),
]


@pytest.mark.parametrize(("net", "text"), REFUSED, ids=lambda x: type(x).__name__)
def test_what_cannot_be_built_is_named(net: nn.Module, text: str, tmp_path: Path) -> None:
    program = export(net, (torch.randn(4, 3),), check=False)
    with pytest.raises(ExportError, match=text):
        build(program, tmp_path)
    assert not list(tmp_path.iterdir())


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"target": "vax"}, "no target 'vax'; there are native, x86-64-v2"),
    ({"name": "a b"}, "must be a name in C"),
    ({"weights": "outside"}, "weights is 'inside' or 'file'"),
    ({"sizes": [{"t": 1}]}, r"the sizes of this program are \['batch'\]"),
    ({"sizes": [{"batch": 65}]}, "batch = 65: the program was exported for batch from 1 to 64"),
    ({"sizes": [{"batch": 2}, {"batch": 2}]}, "different dicts"),
]


@pytest.mark.parametrize(("how", "text"), WRONG, ids=lambda x: str(x)[:30])
def test_wrong_arguments(how: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=text):
        build(exported("mlp")[0], tmp_path, **how)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = nn.Linear(3, 2)
    path = tmp_path / "my-net.pt2"
    save(export(net, (torch.ones(2, 3),)), path)
    assert cli.main(["build", str(path), "-o", str(tmp_path / "out"), "--target", "aarch64",
                     "--no-link"]) == 0  # fmt: skip
    assert "not linked; there: cc -shared" in capsys.readouterr().out
    data = (tmp_path / "out" / "my_net.o").read_bytes()
    assert data[:4] == b"\x7fELF"
    assert int.from_bytes(data[18:20], "little") == MACHINES["aarch64"].elf[0]
    assert cli.main(["build", str(path), "--sizes", "batch"]) == 2
    assert "names with numbers are expected" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("found", "has_zig", "words"),
    [
        ({"cc", "gcc"}, True, ["/bin/cc"]),
        ({"clang"}, True, ["/bin/clang"]),
        (set(), True, ["-m", "ziglang", "cc", "-target", "x86_64-linux-gnu"]),
        (set(), False, None),
    ],
)
def test_who_links(
    found: set[str], has_zig: bool, words: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "is_here", lambda machine: True)
    monkeypatch.setattr(link.shutil, "which", lambda x: f"/bin/{x}" if x in found else None)
    monkeypatch.setattr(link.importlib.util, "find_spec", lambda name: has_zig or None)
    chosen = link.compiler(MACHINES["x86-64-v3"])
    assert chosen == words or (chosen is not None and chosen[1:] == words)


def test_names_of_modules_that_become_one() -> None:
    outer, inner = Module(), Module()
    inner.variable("state", "i64", "0", shown=True)
    with inner.function("helper", [], I64, internal=True) as f:
        f.ret(f.load(I64, f.symbol("state")))
    with inner.function("entry", [], I64) as f:
        f.call("outside", I64, [])
        f.ret(f.call("helper", I64, []))
    outer.adopt(inner, "k0_")
    outer.adopt(inner, "k1_", keep=frozenset(("entry",)))
    text = outer.text()
    assert "define internal i64 @k0_entry()" in text
    assert "define internal i64 @entry()" in text
    assert "call i64 @k1_helper()" in text
    assert "@k1_state = internal global i64 0" in text
    assert outer.imports() == ["outside"]
    assert not outer.exports
