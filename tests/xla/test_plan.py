"""`lucerne plan`: what a program needs on devices that are not here.

Plans are made in processes of their own: planning begins before JAX does.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import lucerne as torch
from lucerne import cli

pytest.importorskip("jax", reason="pip install 'lucerne[xla]': the device 'xla' runs on jax")

from lucerne._src.backends.contract.planned import (
    Chip,
    ChipLink,
    Collective,
    PlannedProgram,
)
from lucerne._src.backends.xla.program_text import (
    collectives,
    moved_bytes,
    product_flops,
)
from lucerne._src.distributed.plan.costs import reshards, seconds_of
from tests.xla.test_mesh import COUNTS

# ---- the text of a program -----------------------------------------------------------------------

A, S = ", replica_groups=", ", source_target_pairs="
FIRST4 = (0, 1, 2, 3)
EVERY8TH = tuple(range(0, 64, 8))
LINES: list[tuple[str, tuple[str, int, tuple[int, ...]] | None]] = [
    # (a line, kind, bytes of the whole, first group)
    ("%a = f32[8,4]{1,0} all-reduce(%x)" + A + "{{0,1,2,3},{4,5,6,7}}",
     ("all-reduce", 128, FIRST4)),
    ("a = bf16[8,4]{1,0} all-gather(x)" + A + "[2,4]<=[8]", ("all-gather", 64, FIRST4)),
    ("%a = bf16[8,4] all-gather(%x)" + A + "[8,8]<=[8,8]T(1,0)", ("all-gather", 64, EVERY8TH)),
    ("%a = f32[2,4] reduce-scatter(%x)" + A + "[2,4]<=[8]", ("reduce-scatter", 128, FIRST4)),
    ("%a = f32[] all-reduce(%x)" + A + "{}", ("all-reduce", 4, ())),
    ("%a = (f32[8], /*index=1*/f32[2]{0}, pred[16]) all-reduce(%x, %y, %z)" + A + "{{0,1}}",
     ("all-reduce", 56, (0, 1))),
    ("%a = (f32[2], f32[2], f32[2], f32[2], f32[2], /*index=5*/bf16[2]) all-reduce-start(%x)" + A
     + "{{0,1}}", ("all-reduce", 44, (0, 1))),
    ("%a = (bf16[2,4]{1,0}, bf16[8,4]{1,0}) all-gather-start(%x)" + A + "{{0,1,2,3}}",
     ("all-gather", 64, FIRST4)),
    ("%a = ((bf16[2], f32[1]), (bf16[8], f32[4])) all-gather-start(%x, %y)" + A + "{{0,1,2,3}}",
     ("all-gather", 32, FIRST4)),
    ("%a = ((f32[8]), f32[2]) reduce-scatter-start(%x)" + A + "{{0,1,2,3}}",
     ("reduce-scatter", 32, FIRST4)),
    ("%a = f32[2] all-gather-done(%x)", None),
    ("%a = f32[8] all-to-all(%x)" + A + "{{0,2}}, dimensions={0}", ("all-to-all", 32, (0, 2))),
    ("%a = (f32[4], f32[4]) all-to-all(%x, %y)" + A + "{{0,1}}", ("all-to-all", 32, (0, 1))),
    ("%a = f32[8] collective-permute(%x)" + S + "{{0,1},{1,0}}", ("collective-permute", 32, ())),
    ("%a = (f32[8], f32[8], u32[], u32[]) collective-permute-start(%x)" + S + "{{0,1},{1,0}}",
     ("collective-permute", 32, ())),
    ("%a = f32[8] all-reduce(%x)" + A + "mesh['axis_0'=16,'axis_1'=1] {'axis_0'}",
     ("all-reduce", 32, tuple(range(16)))),
    ("%a = f32[8] all-reduce(%x)" + A + "mesh['a'=8,'b'=8] {'a'}", ("all-reduce", 32, EVERY8TH)),
    ("%a = f32[8] all-reduce(%x)" + A + "mesh['a'=2,'b'=4] {'b'}", ("all-reduce", 32, FIRST4)),
    ("%a = f32[8] all-reduce(%x)" + A + "mesh['a'=2,'b'=4] {'a','b'}",
     ("all-reduce", 32, tuple(range(8)))),
    ("%a = f32[8] all-reduce(%x)" + A + "mesh['a'=8] {'a':(2)2}", ("all-reduce", 32, (0, 2))),
    ("%a = f32[8] all-reduce(%x)" + A + "mesh['a'=8] {'a':(1)4}",
     ("all-reduce", 32, (0, 2, 4, 6))),
    ("%a = f8e4m3fn[8] all-gather(%x)" + A + "[1,4]<=[4]", ("all-gather", 8, FIRST4)),
    ("%a = bf16[8,128]{1,0:T(8,128)(2,1)S(1)} all-gather(%x)" + A + "[1,4]<=[4]",
     ("all-gather", 2048, FIRST4)),
    ("%a = f32[8] add(%x, %y), metadata={op_name=\"all-reduce(\"}", None),
    ("// all-reduce(", None),
]  # fmt: skip


@pytest.mark.parametrize(("line", "wanted"), LINES, ids=[str(k) for k in range(len(LINES))])
def test_a_collective_is_read(line: str, wanted: Any) -> None:
    found = [(c.kind, c.nbytes, c.group) for c in collectives("  " + line)]
    assert found == ([] if wanted is None else [wanted])


LOOP = """
%body (p: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %p = (s32[], f32[4,8]{1,0}) parameter(0)
  %x = f32[4,8]{1,0} get-tuple-element(%p), index=1
  %w = f32[8,8]{1,0} constant({...})
  %y = f32[4,8]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %r = f32[4,8]{1,0} all-reduce(%y), replica_groups={{0,1}}, metadata={op_name="jit(f)/{a.py:3 b}/dot"}
  %one = s32[] get-tuple-element(%p), index=0
  ROOT %t = (s32[], f32[4,8]{1,0}) tuple(%one, %r)
}

%never (p: f32[4,8]) -> f32[4,8] {
  ROOT %r = f32[4,8]{1,0} all-reduce(%p), replica_groups={{0,1}}
}

ENTRY %main (a: f32[4,8]) -> f32[4,8] {
  %a = f32[4,8]{1,0} parameter(0)
  %z = s32[] constant(0)
  %s = (s32[], f32[4,8]{1,0}) tuple(%z, %a)
  %loop = (s32[], f32[4,8]{1,0}) while(%s), condition=%c, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  ROOT %o = f32[4,8]{1,0} get-tuple-element(%loop), index=1
}
"""  # noqa: E501 - as XLA writes it


def test_what_a_loop_does_is_done_each_time() -> None:
    [found] = collectives(LOOP)
    assert (found.times, found.nbytes, found.where) == (5, 128, "a.py:3 b")
    assert product_flops(LOOP) == 5 * 2 * 4 * 8 * 8
    assert moved_bytes(LOOP) == 5 * (4 * 8 + 8 * 8 + 4 * 8) * 4


FLOPS = [
    ("%d = f32[4,6] dot(f32[4,8] %x, f32[8,6] %y), lhs_contracting_dims={1}", 2 * 4 * 6 * 8),
    ("%d = f32[3,4,6] dot(f32[3,4,8] %x, f32[3,8,6] %y), lhs_batch_dims={0}, "
     "lhs_contracting_dims={2}", 2 * 3 * 4 * 6 * 8),
    ('%d = (f32[4,6], s8[99]) custom-call(f32[4,8] %x, f32[8,6] %y), custom_call_target='
     '"__cublas$gemm", backend_config={"lhs_contracting_dimensions":["1"]}', 2 * 4 * 6 * 8),
    ("%c = f32[2,5,5,7] convolution(f32[2,5,5,3] %x, f32[3,3,3,7] %w), window={size=3x3}, "
     "dim_labels=b01f_01io->b01f", 2 * 2 * 5 * 5 * 7 * 3 * 3 * 3),
    ("%a = f32[4] add(f32[4] %x, f32[4] %y)", 0),
]  # fmt: skip


@pytest.mark.parametrize(("line", "wanted"), FLOPS, ids=[str(k) for k in range(len(FLOPS))])
def test_products_are_counted(line: str, wanted: int) -> None:
    assert product_flops("  " + line) == wanted


# ---- seconds -------------------------------------------------------------------------------------

CHIP = Chip("c", "gpu", 0, 1.0, 1.0, ChipLink(8.0, 0.0), ChipLink(1.0, 0.0), together=4, count=64)
TALL = tuple(range(16))
SECONDS = [
    (Collective("all-gather", 64, FIRST4), 64 * 3 / 4 / 8),
    (Collective("reduce-scatter", 64, FIRST4), 64 * 3 / 4 / 8),
    (Collective("all-reduce", 64, FIRST4), 2 * 64 * 3 / 4 / 8),
    (Collective("all-gather", 64, TALL), 64 * 15 / 16 / 4),  # 4 devices carry what a host sends
    (Collective("all-gather", 64, (0, 4, 8, 12)), 64 * 3 / 4),
    (Collective("all-to-all", 64, FIRST4), 64 * 3 / 4 / 8),
    (Collective("all-to-all", 64, TALL), 64 * 12 / 16),
    (Collective("collective-permute", 64, (), pairs=((0, 1), (1, 2))), 64 / 8),
    (Collective("collective-permute", 64, (), pairs=((0, 1), (3, 4))), 64),
    (Collective("all-reduce", 64, (0,)), 0),
]


@pytest.mark.parametrize(("sent", "wanted"), SECONDS, ids=[str(k) for k in range(len(SECONDS))])
def test_a_ring(sent: Collective, wanted: float) -> None:
    assert seconds_of(sent, None, CHIP) == pytest.approx(wanted)


# ---- the command ---------------------------------------------------------------------------------

HEAD = """
import lucerne as torch
from lucerne import nn
from lucerne.distributed.device_mesh import init_device_mesh
from lucerne.distributed.fsdp import fully_shard
mesh = init_device_mesh("xla", (8,), mesh_dim_names=("data",))
"""
LINEAR = """
with torch.device("xla"):
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3)])
    x = torch.randn(ROWS, WIDTH)
fully_shard(model, mesh=mesh)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
@torch.compile
def step(x):
    loss = model(x).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss.detach()
"""


def _script(folder: Path, text: str, **sizes: int) -> str:
    for name, n in sizes.items():
        text = text.replace(name, str(n))
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    return str(path)


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lucerne", "plan", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _planned(script: str, chip: str, *arguments: str) -> Any:
    """What the backend tells of a script's one program."""
    code = (
        "import json, sys\n"
        "from dataclasses import asdict\n"
        "from lucerne._src import backends\n"
        "from lucerne._src.distributed.plan.command import run_script\n"
        f"with backends.get('xla').plan({chip!r}, 3) as plan:\n"
        f"    run_script({script!r}, {list(arguments)!r})\n"
        "    [found] = plan.programs()\n"
        "print(json.dumps(asdict(found)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def _bytes(found: Any, kind: str) -> int:
    return sum(c["nbytes"] * c["times"] for c in found["collectives"] if c["kind"] == kind)


def test_the_plan_of_fully_shard_is_the_closed_form(tmp_path: Path) -> None:
    """Each weight is gathered for the forward pass, all but the first (whose input needs no
    gradient) for the backward pass again, and gradients are summed over the devices."""
    width, rows = 256, 4096
    text = HEAD + LINEAR + "while True:\n    step(x)\n"
    found = _planned(_script(tmp_path, text, WIDTH=width, ROWS=rows), "cpu:8")
    weights = 3 * width * width * 4
    assert _bytes(found, "all-gather") == weights + weights * 2 // 3
    assert _bytes(found, "all-reduce") == pytest.approx(weights, rel=0.01)
    assert {tuple(c["axes"]) for c in found["collectives"]} == {("data",)}
    # three products forward, two times two and one backward: the first has no input to be given
    assert found["flops"] == 8 * 2 * rows * width * width / 8
    batch = rows * width * 4  # (whole on each device: nobody placed it)
    assert found["memory"]["arguments"] == pytest.approx(weights / 8 + batch, abs=64)
    assert all(c["where"].split(":")[0] in ("train.py", "backward of train.py")
               for c in found["collectives"] if c["where"])  # fmt: skip


@pytest.mark.parametrize("form", ["FSDP", "FSDP x TP"])
def test_a_plan_has_the_collectives_of_the_program_that_runs(form: str, tmp_path: Path) -> None:
    text = (
        "from tests.xla.meshes import MeshTraining\n"
        f"training = MeshTraining('two layers', {form!r})\n"
        "training.losses(3)\n"
    )
    found = _planned(_script(tmp_path, text), "cpu:8")
    assert dict(Counter(c["kind"] for c in found["collectives"])) == COUNTS["two layers", form]


def test_the_guide_is_planned(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs/guide/mesh.md").read_text(encoding="utf-8")
    script = _script(tmp_path, text.split("```py\n")[1].split("```")[0])
    html = tmp_path / "plan.html"
    ran = _run("--chip", "cpu:8", "--html", str(html), script, "--mesh", "data=2,model=4")
    assert ran.returncode == 0, ran.stderr
    for part in (
        "8 devices (data=2, model=4) of cpu: train.py:",
        "all-reduce  data",
        "all-reduce  model",
        "it fits",
        "a number was looked at 5 times, and was nan: train.py:",
    ):
        assert part in ran.stdout
    page = html.read_text(encoding="utf-8")
    assert "<svg" in page
    assert "http" not in page


def test_nothing_is_allocated(tmp_path: Path) -> None:
    """51 GB of parameters in a process that may take 2."""
    text = (
        HEAD + LINEAR + "for _ in range(2):\n    print(step(x).item())\n"
        # (`ru_maxrss` begins with what the process had that started this one)
        "most = open('/proc/self/status').read().partition('VmHWM:')[2].split()[0]\n"
        "assert int(most) < 2 << 20, most\n"
    )
    ran = _run("--chip", "cpu:8", _script(tmp_path, text, WIDTH=65536, ROWS=64))
    assert ran.returncode == 1, ran.stderr
    assert "IT DOES NOT FIT" in ran.stdout
    assert "  1. " in ran.stdout


FUSED = """
import lucerne as torch
from lucerne import nn
from lucerne.distributed.device_mesh import init_device_mesh
from lucerne.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
    def forward(self, x):
        q, k, v = self.qkv(x).split(32, 2)  # here
        return x + self.out(q * k * v)
mesh = init_device_mesh("xla", (4,))
with torch.device("xla"):
    model, x = nn.Sequential(Block(), Block()), torch.randn(8, 16, 32)
parallelize_module(model, mesh, {"*.qkv": ColwiseParallel(), "*.out": RowwiseParallel()})
step = torch.compile(lambda x: model(x).square().mean())
for _ in range(2):
    step(x)
"""


def test_reshards_are_named_with_the_line_and_the_fix(tmp_path: Path) -> None:
    ran = _run("--chip", "cpu:8", _script(tmp_path, FUSED))
    [line] = [row for row in ran.stdout.splitlines() if " reshards in " in row]
    at = 1 + next(k for k, row in enumerate(FUSED.splitlines()) if row.endswith("# here"))
    assert re.match(rf"  \d+ reshards in \*, train.py:{at}: shard the heads: ", line), line
    assert "by collective-permute" in line


def _resharded(where: str, op: str, kind: str = "all-to-all") -> Collective:
    return Collective(kind, 8, (0, 1), 2, where, op=op)


RESHARDS: list[tuple[list[Collective], list[str]]] = [
    (
        [_resharded("m.py:3 a.0.b.12", "cat"), _resharded("backward of m.py:3 a.1.b.7", "cat")],
        ["4 reshards in a.*.b.*, m.py:3 (2 backward): cat joins or moves along"],
    ),
    (
        [_resharded("m.py:3 emb", "index"), _resharded("m.py:4", "add")],
        ["2 reshards in emb, m.py:3: index looks rows up", "2 reshards in m.py:4: its operands"],
    ),
    ([_resharded("", "")], ["2 reshards in an unknown line: its operands lie in different ways"]),
    ([_resharded("m.py:3 x", "cat", "all-reduce")], []),
]


@pytest.mark.parametrize(("sent", "wanted"), RESHARDS, ids=[str(k) for k in range(len(RESHARDS))])
def test_a_reshard_has_words(sent: list[Collective], wanted: list[str]) -> None:
    found = reshards(PlannedProgram("step", 1, None, collectives=sent))
    assert len(found) == len(wanted)
    assert all(str(row).startswith(text) for row, text in zip(found, wanted, strict=True))


REFUSED = [
    (HEAD + LINEAR + "step(x)\nprint(x[0].tolist())  # here\n", "looks at the values of a torch."),
    (HEAD + LINEAR + "if (x > 0).all():  # here\n    step(x)\n", "torch.bool tensor of shape ()"),
    (HEAD + LINEAR + "x.nonzero()  # here\n", "the shape of a result depends on values"),
    (HEAD, "the script called no compiled function on the device"),
    ("import lucerne\nlucerne.ones(2, device='xla').sum()\n", "called no compiled function"),
    (HEAD.replace("(8,)", "(9,)"), "the mesh names device 8, but 'xla' has 8 here"),
]


@pytest.mark.parametrize(("text", "said"), REFUSED, ids=[str(k) for k in range(len(REFUSED))])
def test_what_cannot_be_planned_is_told_with_the_line(text: str, said: str, tmp_path: Path) -> None:
    ran = _run("--chip", "cpu:8", _script(tmp_path, text, WIDTH=64, ROWS=64))
    assert ran.returncode != 0
    assert said in ran.stderr
    lines = [k for k, line in enumerate(text.splitlines(), 1) if line.endswith("# here")]
    assert all(f"train.py:{k} in <module>" in ran.stderr for k in lines)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--chip", "abacus"], "no chip 'abacus'; there are h100, v5e, cpu"),
        (["--chip", "cpu:9999"], "XLA takes 1 to 2048 devices"),
        (["--chip", "h100:8"], "no chip 'h100:8'"),
        (["--device", "cpu"], "can't compile for devices that are not here"),
        (["--chip", "cpu:8"], "a plan must begin before the device is used"),
    ],
)
def test_a_wrong_option_is_told(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.ones(2, device="xla").sum().item()
    assert cli.main(["plan", *words, _script(tmp_path, HEAD)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.nightly
def test_a_chip_that_is_not_here() -> None:
    """A Llama on 256 H100: bfloat16 weights of layers and the last matrix are gathered twice, the
    embedding once; gradients are scattered as float32."""
    why = "pip install 'lucerne[plan]': XLA's compiler for H100"
    pytest.importorskip("jax_plugins.xla_cuda12", reason=why)
    script = str(Path(__file__).with_name("llama.py"))
    found = _planned(script, "h100", "--devices", "256", "--layers", "2")
    width, inner, ends = 4096, 14336, 128256 * 4096
    layers = 2 * (2 * width * width + 2 * width * 1024 + 3 * width * inner)
    assert _bytes(found, "all-gather") == pytest.approx(2 * (2 * layers + 3 * ends), rel=0.01)
    assert _bytes(found, "reduce-scatter") == pytest.approx(4 * (layers + 2 * ends), rel=0.01)
    tokens = 2048  # on each device
    products = 6 * (layers + ends) * tokens + 2 * 3 * 4 * tokens * tokens * width
    assert found["flops"] == pytest.approx(products, rel=0.1)
