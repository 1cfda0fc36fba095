"""How the agents of several machines agree on who is who, once for each generation of ranks."""

from __future__ import annotations

import argparse
import datetime
import json
import socket
import time
from dataclasses import dataclass

from lucerne._src.distributed.meeting.errors import DistError, DistNetworkError
from lucerne._src.distributed.meeting.links import own_address
from lucerne._src.distributed.meeting.stores import KeyStore, PrefixStore
from lucerne._src.distributed.meeting.tcp_store import TCPStore, is_loopback
from lucerne._src.distributed.run.options import machines, settings

BEAT = 0.5
SILENT = 5.0
"""Seconds after which a machine whose agent says nothing is given up."""
LAST_CALL = 3.0
"""Seconds that more machines may come when enough are there."""


@dataclass
class MachinePlace:
    """Where the ranks of this machine are among all."""

    node: int
    nodes: int
    first: int
    world: int
    engine: str
    """Where the engines of the ranks meet: an address on the first machine, another one for each
    generation. (Ours are the store's; an engine that drives a mesh brings its own.)"""


class Meeting:
    """This machine's agent among the others."""

    def __init__(self, options: argparse.Namespace, ranks: int) -> None:
        self.ranks = ranks
        self.least, self.most = machines("1" if options.standalone else options.nnodes)
        conf = settings(options.rdzv_conf)
        self.patience = conf.get("timeout", conf.get("join_timeout", 600.0))
        self.last_call = conf.get("last_call_timeout", LAST_CALL)
        self.wanted_node, self.address = options.node_rank, options.local_addr
        alone = options.standalone or (
            self.most == 1 and not options.rdzv_endpoint and options.master_addr is None
        )
        endpoint = options.rdzv_endpoint or (
            f"{options.master_addr or '127.0.0.1'}:{options.master_port or (0 if alone else 29500)}"
        )
        host, _, port = endpoint.rpartition(":") if ":" in endpoint else (endpoint, "", "29400")
        self.host, self.port = host, int(port)
        if alone:
            self.host, self.port = "127.0.0.1", options.master_port or 0
        self.store, self.keeps = self._open(options, alone)
        self.job = PrefixStore(f"job {options.rdzv_id}", self.store)
        self._beaten = 0.0
        self._seen: dict[int, tuple[bytes, float]] = {}

    def _open(self, options: argparse.Namespace, alone: bool) -> tuple[TCPStore, bool]:
        """The store of all agents; whoever is at its address keeps it."""
        patience = datetime.timedelta(seconds=self.patience)
        here = alone or is_loopback(self.host) or _is_here(self.host)
        first = options.node_rank in (None, 0)
        if here and first:
            try:
                kept = TCPStore(self.host, self.port, None, True, patience, wait_for_workers=False)
                self.port = kept.port
                return kept, True
            except DistNetworkError:
                if alone:
                    raise
        return TCPStore(self.host, self.port, None, False, patience, wait_for_workers=False), False

    def join(self, generation: int) -> tuple[MachinePlace, KeyStore]:
        """Wait until the machines of a generation are there."""
        here = PrefixStore(f"g{generation}", self.job)
        here.set_timeout(datetime.timedelta(seconds=self.patience))
        number = here.add("come", 1) - 1
        wanted = number if self.wanted_node is None else self.wanted_node
        here.set(f"machine/{number}", json.dumps([wanted, self.ranks, socket.gethostname()]))
        if number == 0:
            here.set("size", str(self._gather(here)))
        size = int(here.get("size"))
        if number >= size:
            raise DistError(f"{size} machines are enough, and this one came later")
        rows = sorted((json.loads(here.get(f"machine/{k}"))[0], k) for k in range(size))
        order = [k for _, k in rows]
        counts = [json.loads(here.get(f"machine/{k}"))[1] for k in order]
        node = order.index(number)
        self._node, self._nodes, self._here = node, size, here
        self._seen = {}
        if node == 0:
            here.set("engine", _free_address(self.address or own_address(self.host)))
        engine = here.get("engine").decode()
        return MachinePlace(node, size, sum(counts[:node]), sum(counts), engine), here

    def _gather(self, here: KeyStore) -> int:
        end = time.monotonic() + self.patience
        enough: float | None = None
        while (come := here.add("come", 0)) < self.most:
            now = time.monotonic()
            if come >= self.least:
                enough = enough or now
                if now - enough > self.last_call:
                    break
            elif now > end:
                raise DistError(f"{come} of {self.least} machines came in {self.patience:g} s")
            time.sleep(0.05)
        return min(come, self.most)

    # -- while ranks run -------------------------------------------------------------------------

    def tell(self, what: str) -> None:
        """This generation is over, for all machines."""
        if self._nodes > 1:
            self._here.compare_set("over", "", what)

    def hears(self) -> str:
        """What another machine says, or that it says nothing; empty: all is well."""
        if self._nodes == 1:
            return ""
        now = time.monotonic()
        if now - self._beaten < BEAT:
            return ""
        self._beaten = now
        self._here.set(f"beat/{self._node}", str(now))
        found = self._here._peek("over")
        if found:
            return found.decode(errors="replace")
        for node in range(self._nodes):
            said = self._here._peek(f"beat/{node}") or b""
            before, since = self._seen.get(node, (said, now))
            self._seen[node] = (said, now if said != before else since)
            if node != self._node and now - self._seen[node][1] > SILENT:
                return f"machine {node} says nothing for {SILENT:g} s: it is cut off, or down"
        return ""

    def finished(self) -> None:
        """The ranks here ended well: wait until those of all machines have."""
        if self._nodes == 1:
            return
        try:
            self._here.add("done", 1)
            while self._here.add("done", 0) < self._nodes and not self.hears():
                time.sleep(0.05)
        except DistError:
            if self.keeps:
                raise
            return  # the machine that kept the store has gone before us: all was done

    def close(self) -> None:
        if self.keeps:
            time.sleep(0.2 if self._nodes > 1 else 0.0)  # (the others still ask)
        self.store.close()

    _nodes, _node = 1, 0
    _here: KeyStore


def _free_address(host: str) -> str:
    """A door of this machine that nobody uses."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port = probe.getsockname()[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_here(host: str) -> bool:
    """Whether a name is this machine's."""
    try:
        found = socket.gethostbyname(host)
        probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return False
    try:
        probe.bind((found, 0))
        return True
    except OSError:
        return False
    finally:
        probe.close()
