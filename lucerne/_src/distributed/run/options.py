"""The command line of `lucerne run`, in torchrun's spelling."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from typing import Any

DESCRIPTION = "Start a program as several ranks, watch them, and start them again when one fails."


def add_arguments(made: argparse.ArgumentParser) -> None:
    """The options, each also with underscores."""
    _add(made, "--nnodes", default="1:1", help="machines, N or MIN:MAX")
    _add(made, "--nproc-per-node", default="1", help="ranks on this machine: N, auto or cpu")
    _add(made, "--node-rank", type=int, default=None, help="this machine's number")
    _add(made, "--master-addr", default=None, help="where the first machine is")
    _add(made, "--master-port", type=int, default=None, help="its port")
    _add(made, "--rdzv-backend", default="static", choices=("static", "c10d"), help="how they meet")
    _add(made, "--rdzv-endpoint", default="", help="HOST:PORT where machines meet")
    _add(made, "--rdzv-id", default="none", help="the name of the job")
    _add(made, "--rdzv-conf", default="", help="timeout=SECONDS,last_call_timeout=SECONDS")
    _add(made, "--standalone", action="store_true", help="one machine, any free port")
    _add(made, "--max-restarts", type=int, default=0, help="how often all ranks start again")
    _add(made, "--monitor-interval", type=float, default=0.02, help="seconds between two looks")
    _add(made, "--local-addr", default=None, help="the address of this machine for the others")
    _add(made, "--role", default="default", help="what ROLE_NAME says")
    _add(made, "--log-dir", default=None, help="a folder for the reports of failures")
    _add(made, "--grace", type=float, default=0.4, help="seconds from SIGTERM to SIGKILL")
    _add(
        made, "--stuck-after", type=float, default=0.0,
        help="end ranks that wait for another so many seconds (0: they are reported only)",
    )  # fmt: skip
    _add(
        made, "--print", choices=("slurm", "jobset"), default=None,
        help="start nothing: print an sbatch script, or a JobSet manifest in JSON, of this job",
    )  # fmt: skip
    _add(made, "--image", default="", help="the container of --print jobset")
    made.add_argument("-m", "--module", action="store_true", help="PROGRAM is a module")
    _add(made, "--no-python", action="store_true", help="PROGRAM is a command of its own")
    made.add_argument("program", metavar="PROGRAM")
    made.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS")


def _add(made: argparse.ArgumentParser, name: str, **how: Any) -> None:
    other = "--" + name[2:].replace("-", "_")
    made.add_argument(*dict.fromkeys((name, other)), **how)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="lucerne run", description=DESCRIPTION)
    add_arguments(made)
    return made


def machines(text: str) -> tuple[int, int]:
    """Least and most machines.

    >>> machines("2"), machines("1:4")
    ((2, 2), (1, 4))
    """
    found = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    least, most = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= least <= most:
        raise ValueError(f"--nnodes is N or MIN:MAX, got {text!r}")
    return least, most


def ranks_here(text: str) -> int:
    """How many ranks `--nproc-per-node` asks for."""
    if text in ("auto", "cpu"):
        return os.cpu_count() or 1
    if text.isdigit() and int(text) > 0:
        return int(text)
    if text == "gpu":
        raise ValueError("--nproc-per-node gpu: there is none here; give a number, or cpu")
    raise ValueError(f"--nproc-per-node is a number, auto or cpu, got {text!r}")


def settings(text: str) -> dict[str, float]:
    """`--rdzv-conf` as numbers.

    >>> settings("timeout=30,last_call_timeout=2")
    {'timeout': 30.0, 'last_call_timeout': 2.0}
    """
    found: dict[str, float] = {}
    for pair in filter(None, text.split(",")):
        name, _, value = pair.partition("=")
        known = ("timeout", "last_call_timeout", "join_timeout", "close_timeout")
        if name.strip() not in known:
            raise ValueError(f"--rdzv-conf: no setting {name!r}; there are {', '.join(known)}")
        found[name.strip()] = float(value)
    return found


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    return parser().parse_args(arguments)
