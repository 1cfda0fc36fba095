"""This process among the others: the default group, all groups, and who left or ended."""

from __future__ import annotations

import atexit
import datetime
import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from lucerne._src.base.config import launch_variable
from lucerne._src.distributed.meeting import links
from lucerne._src.distributed.meeting.errors import DistBackendError
from lucerne._src.distributed.meeting.links import Listener
from lucerne._src.distributed.meeting.rendezvous import rendezvous
from lucerne._src.distributed.meeting.stores import KeyStore, PrefixStore, seconds_of
from lucerne._src.distributed.meeting.tcp_store import TCPStore
from lucerne._src.distributed.processes import backends
from lucerne._src.distributed.processes.exchange import Mesh
from lucerne._src.distributed.processes.group import ProcessGroup
from lucerne._src.distributed.processes.mailbox import Mailbox
from lucerne._src.distributed.processes.watch import PeerWatcher
from lucerne._src.distributed.run.board import Board
from lucerne._src.distributed.run.worker import watched_board

default_pg_timeout = datetime.timedelta(minutes=30)
WORLD_NAME = "default_pg"


class World:
    """What `init_process_group` makes, until `destroy_process_group`."""

    def __init__(
        self, store: KeyStore, rank: int, size: int, backend: str, timeout: float, desc: str
    ) -> None:
        self.rank, self.size, self.backend, self.timeout = rank, size, backend, timeout
        self.generation = int(launch_variable("TORCHELASTIC_RESTART_COUNT") or 0)
        self.store = PrefixStore(f"generation {self.generation}/{Current.count}", store)
        inner = store
        while isinstance(inner, PrefixStore):
            inner = inner.underlying_store
        host = inner.host if isinstance(inner, TCPStore) else "localhost"
        self.listener = Listener(links.own_address(host), self.generation)
        self.groups: dict[str, ProcessGroup] = {}
        self.count = 0
        """How many groups were made, those without this rank included: their names agree."""
        self.left: set[int] = set()
        self._locals: dict[str, int] = {}
        self.board: Board = watched_board(rank)
        self.watcher = PeerWatcher(self._heard, self._lost)
        deadline = time.monotonic() + timeout
        card = [*self.listener.address, socket.gethostname(), os.getpid()]
        self.store.set(f"card/{rank}", json.dumps(card))
        self.store.set(f"address/{rank}", json.dumps(self.listener.address))
        for peer in range(size):
            if peer != rank:
                self.watcher.add(peer, self._meet("control", "", peer, rank > peer, deadline))
        self.cards = {r: json.loads(self.store.get(f"card/{r}")) for r in range(size)}
        self.watcher.start()
        self.default = self.group(WORLD_NAME, range(size), backend, timeout, desc or "default_pg")

    def _meet(
        self, kind: str, group: str, peer: int, we_call: bool, deadline: float
    ) -> socket.socket:
        if we_call:
            return links.connect(
                self.store, kind, group, self.rank, peer, self.generation, deadline
            )
        return self.listener.wait(kind, group, peer, deadline)

    def group(
        self, name: str, ranks: Sequence[int], backend: str, timeout: float, desc: str = ""
    ) -> ProcessGroup:
        """A group with this rank in it; all its members make it at the same time."""
        mesh = Mesh(name, self.rank, ranks, self.generation, self.board)
        mesh.timeout = timeout
        deadline = time.monotonic() + timeout
        for index, peer in enumerate(ranks):
            if peer != self.rank:
                mesh.add(index, self._meet("data", name, peer, self.rank > peer, deadline))

        def open_to(index: int) -> socket.socket:
            return self._meet("mail", name, ranks[index], True, time.monotonic() + timeout)

        mailbox = Mailbox(self.generation, open_to, lambda error: made.fail(error))
        made = ProcessGroup(mesh, mailbox, PrefixStore(name, self.store), backend, self._tell, desc)
        numbers = {peer: index for index, peer in enumerate(ranks)}
        self.listener.take_all("mail", name, lambda peer, sock: mailbox.take(numbers[peer], sock))
        self.groups[name] = made
        return made

    def next_local(self, key: str) -> int:
        """How often a group of these ranks was made among themselves."""
        self._locals[key] = self._locals.get(key, 0) + 1
        return self._locals[key]

    # -- failures --------------------------------------------------------------------------------

    def _tell(self, group: str, text: str) -> None:
        self.watcher.tell({"failed": group, "text": text})

    def _heard(self, rank: int, message: dict[str, Any]) -> None:
        if "left" in message:
            self.left.add(rank)
            return
        text = str(message.get("text", ""))
        self.board.hears(text)
        failed = message.get("failed")
        for name, group in list(self.groups.items()):
            if failed in (name, "*") and rank in group.ranks:
                group.heard(DistBackendError(text))

    def _lost(self, rank: int) -> None:
        if rank in self.left:
            reason = f"rank {rank} has left (its program ended, or destroyed its groups)"
            lists = [g for g in self.groups.values() if rank in g.ranks]
            for group in lists:
                group.mailbox_ends(rank, DistBackendError(reason))
            return
        host, process = self.cards[rank][2:] if hasattr(self, "cards") else ("?", 0)
        reason = f"rank {rank} is gone: its process {process} on {host} ended without a word"
        self.board.hears(reason)
        for group in list(self.groups.values()):
            if rank in group.ranks:
                group.heard(DistBackendError(reason))

    def close(self, reason: str = "") -> None:
        """Tell the others, and end all connections."""
        if reason:
            self.watcher.tell({"failed": "*", "text": reason})
        self.watcher.tell({"left": self.rank})
        for group in list(self.groups.values()):
            group.shutdown()
        self.watcher.close()
        self.listener.close()


class Current:
    """The world of this process."""

    world: World | None = None
    process = 0
    count = 0
    """How many worlds it has been in: names in the store begin anew with each."""


def world() -> World:
    """The world, which must be there."""
    found = Current.world
    if found is None:
        raise ValueError(
            "Default process group has not been initialized, please make sure to call "
            "init_process_group."
        )
    return found


def is_initialized() -> bool:
    """Whether this process has joined others (`init_process_group`)."""
    return Current.world is not None


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: datetime.timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: KeyStore | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Make this process a rank of a group of processes that run the same program.

    >>> import lucerne as torch, lucerne.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> x = torch.ones(2)
    >>> dist.all_reduce(x)
    >>> dist.get_rank(), dist.get_world_size(), x
    (0, 1, tensor([1., 1.]))
    >>> dist.destroy_process_group()
    """
    if Current.world is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if pg_options is not None:
        raise ValueError("init_process_group: pg_options are nccl's; tcp has none")
    if device_id is not None and str(device_id).partition(":")[0] != "cpu":
        raise ValueError(f"init_process_group: device_id={device_id!r}, and tcp serves the cpu")
    name = backends.choose(backend)
    patience = default_pg_timeout if timeout is None else timeout
    if store is not None:
        if init_method is not None:
            raise AssertionError("Cannot specify both init_method and store.")
        if world_size < 1 or rank < 0:
            raise AssertionError("world_size must be positive if using store, and rank known")
    else:
        store, rank, world_size = next(
            rendezvous(init_method or "env://", rank, world_size, patience)
        )
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not among {world_size} processes")
    Current.count += 1
    Current.process = os.getpid()
    Current.world = World(store, rank, world_size, name, seconds_of(patience), group_name)


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Leave a group, or with no argument all of them."""
    found = world()
    if group is not None and group is not found.default:
        found.groups.pop(group.group_name, None)
        group.shutdown()
        return
    Current.world = None
    found.close()


def leave() -> None:
    """Tell the others that this program is at its end, and why if it was an error."""
    found = Current.world
    if found is None or Current.process != os.getpid():
        return
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    reason = ""
    if error is not None:
        reason = f"rank {found.rank} ended by {type(error).__name__}: {error}"[:2000]
    Current.world = None
    found.close(reason)


atexit.register(leave)
