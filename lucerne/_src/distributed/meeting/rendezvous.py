"""How processes find each other: `env://`, `tcp://host:port`, `file:///path`, a scheduler."""

from __future__ import annotations

import datetime
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lucerne._src.base.config import launch_variable
from lucerne._src.distributed.meeting.stores import DEFAULT_TIMEOUT, FileStore, KeyStore
from lucerne._src.distributed.meeting.tcp_store import TCPStore

Found = tuple[KeyStore, int, int]
_handlers: dict[str, Callable[..., Iterator[Found]]] = {}
_stores: dict[tuple[str, int, bool], TCPStore] = {}
"""Stores of this process by address: groups that are made anew at one address use them again."""


@dataclass(frozen=True)
class Scheduler:
    """Variables of a launcher that say what torch's say."""

    name: str
    rank: str
    size: str
    local_rank: str


_OMPI = "OMPI_COMM_WORLD"
SCHEDULERS = (
    Scheduler("Open MPI", f"{_OMPI}_RANK", f"{_OMPI}_SIZE", f"{_OMPI}_LOCAL_RANK"),
    Scheduler("MPICH or PBS", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    Scheduler("PALS (PBS)", "PALS_RANKID", "PALS_NRANKS", "PALS_LOCAL_RANKID"),
    Scheduler("PMIx", "PMIX_RANK", "PMIX_SIZE", "PMIX_LOCAL_RANK"),
    Scheduler("Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    Scheduler("JobSet", "JOB_COMPLETION_INDEX", "JOB_PARALLELISM", "JOB_LOCAL_INDEX"),
)  # fmt: skip


def own_place() -> tuple[int | None, int | None]:
    """Rank and size as torch's variables say, or else a scheduler's."""
    rank, size = launch_variable("RANK"), launch_variable("WORLD_SIZE")
    if rank is not None or size is not None:
        return _number("RANK", rank), _number("WORLD_SIZE", size)
    for each in SCHEDULERS:
        rank, size = launch_variable(each.rank), launch_variable(each.size)
        if rank is not None and size is not None:
            return _number(each.rank, rank), _number(each.size, size)
    return None, None


def local_rank() -> int | None:
    """This process's number on its machine, as the launcher says."""
    for name in ("LOCAL_RANK", *(each.local_rank for each in SCHEDULERS)):
        found = launch_variable(name)
        if found is not None:
            return _number(name, found)
    return None


def first_host(nodes: str) -> str:
    """The first name of a list as Slurm writes it.

    >>> first_host("node[017-020,3],other"), first_host("a,b"), first_host("x")
    ('node017', 'a', 'x')
    """
    head, bracket, rest = nodes.partition("[")
    if not bracket or "," in head:
        return nodes.partition(",")[0]
    inside = rest.partition("]")[0]
    return head + inside.partition(",")[0].partition("-")[0]


def _meeting_place(size: int) -> tuple[str, int]:
    """Where the store is: torch's variables, or what a scheduler lets us derive."""
    host, port = launch_variable("MASTER_ADDR"), launch_variable("MASTER_PORT")
    if host is not None and port is not None:
        return host, _number("MASTER_PORT", port) or 0
    nodes = launch_variable("SLURM_STEP_NODELIST") or launch_variable("SLURM_JOB_NODELIST")
    if host is None and nodes:
        host = first_host(nodes) if (launch_variable("SLURM_NNODES") or "1") != "1" else "localhost"
    if host is None and launch_variable(f"{_OMPI}_LOCAL_SIZE") == str(size):
        host = "localhost"  # (mpirun, and all of its ranks are here)
    names = ("SLURM_JOB_ID", "PBS_JOBID", "PMIX_NAMESPACE")
    job = next(filter(None, map(launch_variable, names)), "")
    digits = "".join(c for c in job if c in "0123456789")
    if host is not None and port is None and digits:
        return host, 20000 + int(digits) % 20000  # (the same in all processes of the job)
    if size == 1:
        return "localhost", 0
    missing = [n for n, v in (("MASTER_ADDR", host), ("MASTER_PORT", port)) if v is None]
    raise ValueError(
        f"Error initializing torch.distributed using env:// rendezvous: environment variable "
        f"{' and '.join(missing)} expected, but not set. `lucerne run --nproc-per-node N "
        "program.py` sets it"
    )


def _number(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(
            f"the environment variable {name} is {text!r}, which is no number"
        ) from None


def register_rendezvous_handler(scheme: str, handler: Callable[..., Iterator[Found]]) -> None:
    """Let addresses that begin with `scheme://` be met by a function of yours."""
    if scheme in ("env", "tcp", "file") or scheme in _handlers:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def rendezvous(
    url: str,
    rank: int = -1,
    world_size: int = -1,
    timeout: datetime.timedelta = DEFAULT_TIMEOUT,
) -> Iterator[Found]:
    """Store, rank and size for an address."""
    if not isinstance(url, str):
        raise RuntimeError(f"`url` must be a string. {type(url)}: {url}")
    parts = urllib.parse.urlparse(url)
    query = dict(urllib.parse.parse_qsl(parts.query))
    rank = int(query.get("rank", rank))
    world_size = int(query.get("world_size", world_size))
    if parts.scheme in _handlers:
        yield from _handlers[parts.scheme](url, rank=rank, world_size=world_size, timeout=timeout)
        return
    if parts.scheme not in ("env", "tcp", "file"):
        raise RuntimeError(f"No rendezvous handler for {parts.scheme}://")
    if parts.scheme == "env":
        known, count = own_place()
        rank = rank if rank >= 0 else -1 if known is None else known
        world_size = world_size if world_size > 0 else -1 if count is None else count
    for name, value in (("RANK", rank), ("WORLD_SIZE", world_size)):
        if value < 0:
            raise ValueError(
                f"Error initializing torch.distributed using {parts.scheme}:// rendezvous: "
                + (f"environment variable {name} expected, but not set" if parts.scheme == "env"
                   else f"{name.lower()} parameter missing")
            )  # fmt: skip
    yield _store(parts, rank, world_size, timeout), rank, world_size


def _store(
    parts: urllib.parse.ParseResult, rank: int, size: int, timeout: datetime.timedelta
) -> KeyStore:
    if parts.scheme == "file":
        path = urllib.parse.unquote(parts.netloc + parts.path)
        if not path:
            raise ValueError("file:// needs a path: file:///tmp/meeting")
        made = FileStore(path, size)
        made.set_timeout(timeout)
        return made
    if parts.scheme == "tcp":
        if not parts.port and size > 1:
            raise ValueError("tcp:// needs a port: tcp://10.1.1.20:23456")
        host, port = parts.hostname or "localhost", parts.port or 0
    else:
        host, port = _meeting_place(size)
    agents = launch_variable("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return shared_store(host, port, rank == 0 and not agents, timeout)


def shared_store(host: str, port: int, master: bool, timeout: datetime.timedelta) -> TCPStore:
    """The store at an address, made once in a process."""
    key = (host, port, master)
    found = _stores.get(key) if port else None
    if found is None:
        found = TCPStore(host, port, None, master, timeout, wait_for_workers=False)
        _stores[key] = found
    found.set_timeout(timeout)
    return found
