"""Instructions of calls with hardly any work, this checkout beside another one, by valgrind.

    python -m benchmarks instructions /path/to/other/checkout
    python -m benchmarks instructions BASE --only eager --calls 200
    python -m benchmarks instructions --watched      this checkout, in `detect_nonfinite()` and not

How often a program is preempted, and what else runs, does not change how many instructions it
takes: one in a hundred is told apart on a busy machine too. What a wait for memory costs is not in
it. Only x86-64; valgrind has no AVX-512, so kernels are those of AVX2.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import importlib
import mmap
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import small_calls

ROOT = Path(__file__).resolve().parent.parent
_ZERO, _DUMP_AT, _START, _STOP = (
    (ord("C") << 24) + (ord("T") << 16) + k for k in (1, 3, 4, 5)
)  # requests to callgrind, as its header numbers them
_REQUEST = bytes.fromhex(
    "53 48 89 f8 31 d2"  # push rbx; mov rax, rdi; xor edx, edx
    "48 c1 c7 03 48 c1 c7 0d 48 c1 c7 3d 48 c1 c7 33 48 87 db"  # what valgrind looks for
    "48 89 d0 5b c3"  # mov rax, rdx; pop rbx; ret
)
"""A function of one address: of a request and its five arguments."""
_PROTECTION = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
_ROUNDS = 3


class Callgrind:
    """Talks to the valgrind that runs this process; without one, nothing happens."""

    def __init__(self) -> None:
        self._code = mmap.mmap(-1, mmap.PAGESIZE, prot=_PROTECTION)
        self._code.write(_REQUEST)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._code))
        self._call = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p)(address)

    def __call__(self, request: int, text: bytes = b"") -> None:
        words = (ctypes.c_uint64 * 6)(request, ctypes.cast(text, ctypes.c_void_p).value or 0)
        self._call(ctypes.addressof(words))


def measure(only: str, calls: int, watched: bool) -> None:
    """In a process under callgrind: a dump for each call and round, `NAME|ROUND` its title."""
    torch = importlib.import_module("lucerne")
    torch.set_num_threads(1)
    ask = Callgrind()
    for name, make in small_calls.CALLS.items():
        if not re.search(only, name):
            continue
        call = make(torch)
        for _ in range(30):
            call()
        with torch.detect_nonfinite() if watched else contextlib.nullcontext():
            call()
            gc.collect()
            gc.disable()
            ask(_START)
            for number in range(_ROUNDS):
                call()
                ask(_ZERO)
                for _ in range(calls):
                    call()
                ask(_DUMP_AT, f"{name}|{number}\0".encode())
            ask(_STOP)
            gc.enable()


def counted(checkout: Path, arguments: list[str], calls: int) -> dict[str, float]:
    """Instructions of each call, with the package of a checkout: the fewest of the rounds."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(checkout), str(ROOT)]),
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "LUCERNE_CPU_FEATURES": "-amx,-avx512",
            "LUCERNE_PAYOFF_CALLS": "0",  # (what is compiled is what is measured)
            "LUCERNE_CACHE_DIR": f"{folder}/cache",
        }
        tool = [
            "valgrind",
            "--tool=callgrind",
            "--instr-atstart=no",
            f"--callgrind-out-file={folder}/d",
        ]
        worker = [sys.executable, "-W", "ignore", str(Path(__file__)), "--worker", *arguments]
        done = subprocess.run([*tool, *worker], env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        for file in Path(folder).glob("d*"):
            text = file.read_text()
            title = re.search(r"^desc: Trigger: Client Request: (.*)\|\d+$", text, re.MULTILINE)
            total = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
            if title and total:
                each = int(total[1]) / calls
                found[title[1]] = min(each, found.get(title[1], each))
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("base", nargs="?", help="another checkout")
    parser.add_argument("--only", default="", help="a pattern in the name of a call")
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--watched", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        measure(options.only, options.calls, options.watched)
        return 0
    if options.base is None and not options.watched:
        parser.error("another checkout, or --watched")
    given = ["--only", options.only, "--calls", str(options.calls)]
    before = ROOT if options.base is None else Path(options.base).resolve()
    old = counted(before, given, options.calls)
    new = counted(ROOT, given + ["--watched"] * options.watched, options.calls)
    print(f"{'instructions a call':<44}{'before':>12}{'now':>12}{'ratio':>9}")
    for name in old:
        if name in new:
            ratio = new[name] / old[name]
            print(f"{name:<44}{old[name]:>12,.0f}{new[name]:>12,.0f}{ratio:>9.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
