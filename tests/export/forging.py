"""Exported programs with a right checksum and hostile contents, run to the end.

`python -m tests.export.forging --files 20000`

Files are loaded and run by a child process, one after another: a child that dies is a crash, one
that takes more than 20 s for a file a hang (of its own: see `Watch`), and any exception but those
of `fuzz.CLEAN` is ours to mend. The numbers in the graph are what a kernel may take for granted:
strides, groups, offsets.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import re
import select
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucerne
from lucerne import nn
from lucerne._src.io import safetensors
from lucerne.export import export, save
from tests.export import fuzz
from tests.support.pace import Watch

F = nn.functional
PATIENCE = 20.0
NUMBERS = (
    0, 1, 2, 3, 5, 7, 77, -1, -2, -(2**31), -(2**62), 255, 2**16, 2**31 - 1, 2**31, 2**32,
    2**33 + 1, 10**9, 10**12, 2**40, 2**61, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64,
)  # fmt: skip


def _windows(x: Any, w: Any) -> Any:
    small = F.avg_pool2d(x, 2, 1) + F.max_pool2d(x, 2, 1)
    large = F.interpolate(F.adaptive_avg_pool2d(x, 3), scale_factor=2.0, mode="bilinear")
    cols = F.unfold(F.pad(x, (1, 1, 2, 0), mode="reflect"), 3, stride=2)
    back = F.fold(F.unfold(x, 2), (5, 5), 2)
    up = F.conv_transpose2d(F.conv2d(x, w, stride=2, padding=1, groups=2), w, stride=2, groups=2)
    return small.sum() + large.mean(), cols, back, up, F.lp_pool2d(x, 2, 2)


def _indices(x: Any, ids: Any) -> Any:
    table = x.flatten(1)[:, :4].contiguous()
    bags = F.embedding_bag(ids.flatten(), table, lucerne.tensor([0, 2, 3]), mode="sum")
    rows = table.index_select(0, ids[0]) + table[ids[1]]
    moved = lucerne.zeros(4, 4).scatter_add(0, ids[:, :2], table[:2, :2])
    put = table.index_add(0, ids[0], rows).index_fill(1, ids[1], 2.0)
    taken = table.gather(1, ids.T[:2]), table.take(ids), table.roll(1, 0).flip(1)
    marks = lucerne.bucketize(table, lucerne.arange(4.0)), F.one_hot(ids, 5)
    return bags, moved, put, taken, marks, table.masked_fill(table > 0, 1.0), table.tril(1)


def _orders(x: Any) -> Any:
    flat = x.flatten(1)
    top, where = flat.topk(3)
    sums = flat.cumsum(1), flat.logcumsumexp(0), flat.cummax(1)[0], flat.cumprod(1)
    parts = flat.unfold(1, 4, 2), flat.as_strided((3, 2), (2, 1), 1), flat.diagonal(1)
    kth = flat.kthvalue(2)[0], flat.median(1)[0], flat.sort(1, stable=True)[1]
    return top, where, sums, parts, kth, flat.repeat_interleave(2, 0), lucerne.cdist(flat, flat)


class _Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.gru = nn.LSTM(4, 3), nn.GRU(4, 3)
        self.groups, self.rows = nn.GroupNorm(2, 4), nn.LayerNorm(3)
        self.conv1, self.conv3 = nn.Conv1d(4, 4, 2, dilation=2), nn.Conv3d(1, 2, 2)

    def forward(self, x: Any) -> Any:
        h = self.conv1(self.groups(x)).transpose(1, 2)
        h = self.rows(self.rnn(h)[0] + self.gru(h)[0])
        a = F.scaled_dot_product_attention(h[None], h[None], h[None], is_causal=True)
        z = lucerne.fft.rfft(h, dim=1).abs()
        return a, z, self.conv3(h[None, None]), lucerne.linalg.solve(lucerne.eye(4), h[0])


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], tuple[Any, ...]]]] = {
    "net": (fuzz.Net, lambda: (lucerne.randn(3, 2, 5, 5), lucerne.tensor([0, 3, 6]))),
    "windows": (
        lambda: _windows,
        lambda: (lucerne.randn(2, 4, 5, 5), lucerne.randn(4, 2, 2, 2)),
    ),
    "indices": (
        lambda: _indices,
        lambda: (lucerne.randn(4, 2, 2, 2), lucerne.tensor([[0, 3, 1, 2], [2, 2, 0, 1]])),
    ),
    "layers": (_Layers, lambda: (lucerne.randn(4, 4, 6),)),
    "orders": (lambda: _orders, lambda: (lucerne.randn(3, 3, 4),)),
}


class Function(nn.Module):
    """A function as a module, which is what can be exported."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def _arguments(name: str) -> tuple[Any, ...]:
    lucerne.manual_seed(0)
    return MODELS[name][1]()


def write_originals(folder: Path) -> None:
    """A good file of each model."""
    for name, (make, _) in MODELS.items():
        lucerne.manual_seed(1)
        made = make()
        model = made if isinstance(made, nn.Module) else Function(made)
        file = io.BytesIO()
        save(export(model, _arguments(name)), file)
        (folder / name).write_bytes(file.getvalue())


def read_originals(folder: Path) -> list[tuple[bytes, tuple[Any, ...]]]:
    """Good files, and arguments for each."""
    return [((folder / name).read_bytes(), _arguments(name)) for name in MODELS]


def forged(content: bytes, rng: random.Random) -> bytes:
    """One to three numbers of the graph replaced, or what `fuzz.forged` does."""
    if rng.random() < 0.3:
        return fuzz.forged(content, rng)
    said, _, _ = safetensors._header(safetensors.np.frombuffer(content, safetensors.np.uint8))
    said = {k: v for k, v in said.items() if k != safetensors.DIGEST}
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = said["lucerne.graph"]
        places = list(re.finditer(r"(?<![\w%.])-?\d+(?![\w.])", text))
        at = rng.choice(places)
        said["lucerne.graph"] = text[: at.start()] + str(rng.choice(NUMBERS)) + text[at.end() :]
    return safetensors.save(safetensors.load(content), said, digest=True)


def file_of(number: int, files: list[tuple[bytes, tuple[Any, ...]]]) -> tuple[bytes, Any]:
    rng = random.Random(number)
    content, args = rng.choice(files)
    return forged(content, rng), args


def work(folder: Path, first: int, last: int) -> None:
    """In the child: a line when a file begins, and one that says what became of it."""
    files = read_originals(folder)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for number in range(first, last):
        content, args = file_of(number, files)
        print(f"begin {number}", file=out, flush=True)
        try:
            told = fuzz.outcome(content, args, None)
        except Exception as error:
            told = f"foreign {type(error).__name__}: {error}"[:300].replace("\n", " ")
        print(f"end {told}", file=out, flush=True)


class Child:
    """A process that goes through files; its lines, or None when none comes in time."""

    def __init__(self, folder: Path, first: int, last: int) -> None:
        given = ["--child", str(folder), str(first), str(last)]
        command = [sys.executable, "-m", "tests.export.forging", *given]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],
        )
        assert self.process.stdout is not None
        self.out = self.process.stdout
        self.held = b""

    def line(self, patience: float) -> str | None:
        watch = Watch(self.process.pid)
        while b"\n" not in self.held:
            rest = patience - watch.seconds()
            if rest <= 0:
                return None
            if not select.select([self.out], [], [], max(rest, 0.1))[0]:
                continue  # the machine may be busy: then the child did not have its time yet
            got = os.read(self.out.fileno(), 4096)
            if not got:
                return ""
            self.held += got
        line, _, self.held = self.held.partition(b"\n")
        return line.decode()

    def end(self) -> int:
        self.process.kill()
        self.out.close()
        return self.process.wait()


def run(files: int, seed: int = 0, patience: float = PATIENCE) -> Counter[str]:
    """What becomes of so many files; keys that begin with `BAD` are faults."""
    found: Counter[str] = Counter()
    number, last = seed, seed + files
    with tempfile.TemporaryDirectory() as name:
        write_originals(Path(name))
        while number < last:
            number = _go_on(Child(Path(name), number, last), number, last, patience, found)
    return found


def _go_on(child: Child, number: int, last: int, patience: float, found: Counter[str]) -> int:
    """Count what becomes of the child's files; the number of the next one when it ends."""
    while number < last:
        begun = child.line(max(patience, PATIENCE))
        told = None if begun is None else child.line(patience)
        number += 1
        if number % 1000 == 0:
            print(f"{number} files, {last - number} to go", file=sys.stderr, flush=True)
        if told and told.startswith("end "):
            kind = told[4:]
            found["BAD " + kind if kind.startswith("foreign") else kind] += 1
            if kind.startswith("foreign"):
                print(f"file {number - 1}: {kind}", flush=True)
            continue
        what = "hangs" if told is None else "crashes"
        found[f"BAD {what}"] += 1
        print(f"file {number - 1}: {what}", flush=True)
        break
    child.end()
    return number


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.export.forging")
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="the number of the first file")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        folder, first, last = chosen.child
        work(Path(folder), int(first), int(last))
        return 0
    found = run(chosen.files, chosen.seed)
    for told, count in sorted(found.items()):
        print(f"{count:6d} {told}")
    return 1 if any(told.startswith("BAD") for told in found) else 0


if __name__ == "__main__":
    sys.exit(main())
