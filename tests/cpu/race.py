"""Many processes on one cache, killed at random: `python -m tests.cpu.race FOLDER ROUNDS SEED`.

Each round forks eight workers. A worker asks for kernels by key again and again: it reads the
cache, or compiles and writes, and checks what the kernel answers; one worker also damages files.
Every worker is killed with SIGKILL after a random time. Prints how many answers were right and
wrong, and how many workers ended by themselves (only after a wrong answer or an error).
"""

import ctypes
import json
import os
import random
import signal
import sys
import time

from lucerne._src.backends.cpu.emit.builder import I64, Module
from lucerne._src.backends.cpu.runtime import code, disk
from lucerne._src.backends.cpu.runtime.image import ImageError
from lucerne._src.backends.cpu.runtime.llvm import llvm

KEYS = 6
WORKERS = 8


def payload(number: int) -> bytes:
    """Code that answers its number."""

    def write(m: Module) -> None:
        with m.function("f", [], I64) as f:
            f.ret(number * 1_000_003 + 7)

    return code.build(write)


def key(number: int) -> bytes:
    return bytes([number]) * 32


def answer(cache: disk.Cache, number: int) -> int:
    """What the kernel of this number says, from the cache or compiled."""
    kept = cache.read(key(number))
    try:
        made = code.load(kept) if kept is not None else None
    except ImageError:
        made = None
    if made is None:
        fresh = payload(number)
        cache.write(key(number), fresh)
        made = code.load(fresh)
    return int(ctypes.CFUNCTYPE(ctypes.c_int64)(made["f"])())


def damage(folder: str, rng: random.Random) -> None:
    """Cut, flip, remove or swap files of the cache."""
    names = [name for name in os.listdir(folder) if name.endswith(".kernel")]
    if not names:
        return
    path = os.path.join(folder, rng.choice(names))
    try:
        kind = rng.randrange(4)
        if kind == 0:
            os.truncate(path, rng.randrange(os.path.getsize(path) + 1))
        elif kind == 1:
            with open(path, "r+b") as file:
                file.seek(rng.randrange(os.path.getsize(path) or 1))
                file.write(bytes([rng.randrange(256)]))
        elif kind == 2:
            os.unlink(path)
        else:
            os.replace(path, os.path.join(folder, rng.choice(names)))
    except (FileNotFoundError, ValueError):
        pass


def work(folder: str, seed: int, report: int) -> None:
    """The life of a worker: one byte to the pipe for each answer."""
    rng = random.Random(seed)
    cache = disk.Cache(folder, 1 << 20)
    while True:
        if seed % WORKERS == 0 and rng.random() < 0.3:
            damage(folder, rng)
        number = rng.randrange(KEYS)
        right = answer(cache, number) == number * 1_000_003 + 7
        os.write(report, b"+" if right else b"-")
        if not right:
            os._exit(3)


def main(folder: str, rounds: int, seed: int) -> dict[str, int]:
    rng = random.Random(seed)
    llvm()
    ended = killed = 0
    read_end, write_end = os.pipe()
    answers = b""
    for _ in range(rounds):
        workers = []
        for k in range(WORKERS):
            child = os.fork()
            if child == 0:
                os.close(read_end)
                try:
                    work(folder, rng.randrange(1 << 30) * WORKERS + k, write_end)
                finally:
                    os._exit(2)
            workers.append(child)
        for child in rng.sample(workers, len(workers)):
            time.sleep(rng.random() * 0.02)
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            killed += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            ended += os.WIFEXITED(status)
        os.set_blocking(read_end, False)
        try:
            answers += os.read(read_end, 1 << 20)
        except BlockingIOError:
            pass
    return {
        "right": answers.count(b"+"), "wrong": answers.count(b"-"), "killed": killed, "ended": ended
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
