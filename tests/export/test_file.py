"""Files of exported programs: sound, refused when damaged, free of the source that made them."""

from __future__ import annotations

import collections
import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lucerne as lu
from lucerne import nn
from lucerne._src.io import safetensors
from lucerne._src.io.errors import CorruptFileError, LoadError, UnsupportedFileError
from lucerne.export import ExportError, export, load, save
from tests.export import forging, fuzz
from tests.export.rows import Counter, Fn


def test_damaged_files() -> None:
    found = fuzz.run(120, seed=7)
    assert found["damaged: refused"] > 50
    assert found["forged: refused"] > 30


@pytest.mark.nightly
def test_many_damaged_files() -> None:
    fuzz.run(4000, seed=int(random.SystemRandom().random() * 1e9))


def test_fuzz_notices_a_reader_that_believes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "outcome", lambda *args: "different")
    with pytest.raises(AssertionError, match="damaged bytes were taken"):
        fuzz.run(1, seed=0)


def _bytes(module: Any, *args: Any) -> bytes:
    file = io.BytesIO()
    save(export(module, args), file, extra_files={"note": "hello"})
    return file.getvalue()


def _forged(content: bytes, change: Any) -> bytes:
    """The same file with another signature and graph, and a right checksum."""
    said, _, _ = safetensors._header(safetensors.np.frombuffer(content, safetensors.np.uint8))
    told = json.loads(said["lucerne.export"])
    text = change(told, said["lucerne.graph"]) or said["lucerne.graph"]
    said = {"lucerne.export": json.dumps(told), "lucerne.graph": text}
    return safetensors.save(safetensors.load(content), said, digest=True)


FORGERIES = [
    (
        "reads outside",
        lambda t, g: g.replace("as_strided(%0, (2,), (2,), 0)", "as_strided(%0, (2,), (2,), 9)"),
        "outside",
    ),
    (
        "far outside",
        lambda t, g: g.replace("(2,), (2,), 0)", "(2,), (99999,), 0)").replace("{2}", "{99999}"),
        "outside",
    ),
    ("another shape", lambda t, g: g.replace("%2: float32[2]", "%2: float32[3]"), "gives"),
    ("no such op", lambda t, g: g.replace("neg", "system"), "no op 'system'"),
    ("another version", lambda t, g: t.update(version=99), "version 99"),
    ("code for a key", lambda t, g: t.update(in_leaves=["__import__('os')"]), "damaged"),
    ("brackets", lambda t, g: g.replace("neg(%1)", "neg(" + "(" * 500), "nested too deeply"),
    ("too many inputs", lambda t, g: t["inputs"].append(t["inputs"][0]), "does not fit the graph"),
    (
        "a class of another name",
        lambda t, g: t.update(out_shape=["namedtuple", "__class__", ["a"], ["."]]),
        "record",
    ),
    ("unknown tree", lambda t, g: t.update(out_shape=["eval", ["."]]), "unknown kind"),
    ("leaf without end", lambda t, g: t["inputs"][0].update(leaf=99), "damaged"),
]


@pytest.mark.parametrize(
    ("change", "text"), [f[1:] for f in FORGERIES], ids=[f[0] for f in FORGERIES]
)
def test_forged_file_is_refused(change: Any, text: str) -> None:
    content = _bytes(Fn(lambda x: -x.as_strided((2,), (2,))), lu.ones(4))
    with pytest.raises(LoadError, match=text):
        load(io.BytesIO(_forged(content, change)))


def test_forging_nothing_is_taken() -> None:
    content = _bytes(Fn(lambda x: -x.as_strided((2,), (2,))), lu.ones(4))
    assert load(io.BytesIO(_forged(content, lambda t, g: None))).module()(lu.ones(4)).tolist() == [
        -1,
        -1,
    ]


def test_other_files_say_what_they_are(tmp_path: Path) -> None:
    safetensors.save_file({"w": lu.ones(2)}, tmp_path / "w.safetensors")
    with pytest.raises(UnsupportedFileError, match="no exported program"):
        load(tmp_path / "w.safetensors")
    (tmp_path / "torch.pt").write_bytes(b"PK\x03\x04rest")
    with pytest.raises(UnsupportedFileError, match="PyTorch's own"):
        load(tmp_path / "torch.pt")
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(CorruptFileError):
        load(tmp_path / "empty")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing")


def test_weights_are_safetensors(tmp_path: Path) -> None:
    module = nn.Linear(3, 2)
    path = tmp_path / "linear.pt2"
    save(export(module, (lu.ones(1, 3),)), path)
    found = safetensors.load_file(path)
    assert (found["state.weight"] == module.weight).all()
    assert set(found) == {
        "state.weight",
        "state.bias",
    }
    assert [p.name for p in tmp_path.iterdir()] == ["linear.pt2"]  # no temporary file is left


def test_extra_files() -> None:
    extra = {"note": "", "missing": ""}
    load(io.BytesIO(_bytes(nn.ReLU(), lu.ones(2))), extra_files=extra)
    assert extra == {"note": "hello", "missing": ""}


def test_state_goes_on_from_the_file() -> None:
    module = Counter()
    program = export(module, (lu.ones(2, 3),))
    assert program.graph_signature.buffers_to_mutate
    assert module.count == 0
    file = io.BytesIO()
    program.module()(lu.ones(2, 3))
    assert module.count == 1  # the program's buffers are the module's
    save(program, file)
    other = load(io.BytesIO(file.getvalue())).module()
    other(lu.ones(2, 3))
    assert other.count == 2
    assert module.count == 1


def test_module_and_program_must_agree() -> None:
    with pytest.raises(ExportError, match="the largest difference is 0"):
        export(Fn(lambda x: x + random.random()), (lu.ones(2),))


def test_trained_from_the_file(tmp_path: Path) -> None:
    lu.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    save(export(net, (lu.randn(16, 4),)), tmp_path / "net.pt2")
    loaded = load(tmp_path / "net.pt2").module()
    x, y = lu.randn(16, 4), lu.randn(16, 1)
    losses = []
    optimizer = lu.optim.SGD(loaded.parameters(), lr=0.1)
    for _ in range(10):
        optimizer.zero_grad()
        loss = ((loaded(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] * 0.9
    step = lu.compile(loaded, fullgraph=True)
    assert lu.allclose(step(x), loaded(x), atol=1e-6)


_ELSEWHERE = """
import sys
import lucerne as torch
module = torch.jit.load(sys.argv[1])
x = torch.arange(float(sys.argv[2])).reshape(2, 3, 9, 9) / 100
with torch.no_grad():
    print(module(x).flatten().tolist())
print(sorted(m for m in sys.modules if m.startswith("tests")))
"""


def test_new_process_without_the_class(tmp_path: Path) -> None:
    from tests.export.rows import resnet

    lu.manual_seed(0)
    net = resnet().eval()
    x = lu.arange(2.0 * 3 * 9 * 9).reshape(2, 3, 9, 9) / 100
    lu.jit.trace(net, x).save(tmp_path / "net.pt")
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE, str(tmp_path / "net.pt"), str(2 * 3 * 9 * 9)],
        capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root},
    )  # fmt: skip
    numbers, modules = done.stdout.strip().splitlines()
    with lu.no_grad():
        assert json.loads(numbers) == net(x).flatten().tolist()  # every bit
    assert modules == "[]"


@pytest.mark.nightly
def test_forged_numbers_are_refused_or_run() -> None:
    """A part of `python -m tests.export.forging --files 20000`."""
    found = forging.run(400)
    assert sum(found.values()) == 400
    assert not [told for told in found if told.startswith("BAD")], found


def test_a_crash_and_a_hang_are_found(tmp_path: Path) -> None:
    """What the command makes of a child that dies, and of one that says nothing."""

    def child(code: str) -> type:
        class Told(forging.Child):
            def __init__(self, folder: Path, first: int, last: int) -> None:
                command = [sys.executable, "-c", code]
                self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
                assert self.process.stdout is not None
                self.out, self.held = self.process.stdout, b""

        return Told

    for code, told in (
        ("import os; print('begin 0', flush=True); os.abort()", "BAD crashes"),
        ("print('begin 0', flush=True)\nwhile True: pass", "BAD hangs"),
    ):
        found: collections.Counter[str] = collections.Counter()
        forging._go_on(child(code)(tmp_path, 0, 1), 0, 1, 0.5, found)
        assert found == {told: 1}
