"""`ProcessGroup`: ranks that make collectives together, one after the other in one order."""

from __future__ import annotations

import datetime
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

from lucerne._src.base.process import forks
from lucerne._src.base.process.profiler_hook import COLLECTIVE, Watch, watched
from lucerne._src.distributed.meeting.errors import DistBackendError
from lucerne._src.distributed.meeting.stores import KeyStore, seconds_of
from lucerne._src.distributed.processes.algorithms import Algorithms
from lucerne._src.distributed.processes.exchange import Mesh
from lucerne._src.distributed.processes.frames import Call
from lucerne._src.distributed.processes.mailbox import Mailbox
from lucerne._src.distributed.processes.work import Work


class ProcessGroup:
    """The ranks of a group, seen from one of them. `init_process_group` and `new_group` make it."""

    def __init__(
        self,
        mesh: Mesh,
        mailbox: Mailbox,
        store: KeyStore,
        backend: str,
        tell: Callable[[str, str], None],
        group_desc: str = "",
    ) -> None:
        self._mesh, self._mailbox, self._store, self._tell = mesh, mailbox, store, tell
        self.backend = backend
        self.group_name = mesh.name
        self.group_desc = group_desc or "undefined"
        self.algorithms = Algorithms(mesh)
        self._lock = forks.lock()
        self._turn = forks.rlock()
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pending = 0
        self._seq = 0
        self._process = os.getpid()

    # -- torch's names ---------------------------------------------------------------------------

    def rank(self) -> int:
        """This process's number in the group."""
        return self._mesh.index

    def size(self) -> int:
        """How many processes are in it."""
        return len(self._mesh.ranks)

    def name(self) -> str:
        return self.backend

    def get_group_store(self) -> KeyStore:
        return self._store

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """How long its collectives wait for others."""
        self._mesh.timeout = seconds_of(timeout)

    @property
    def timeout(self) -> float:
        return self._mesh.timeout

    @property
    def ranks(self) -> list[int]:
        """Numbers in the world of the members, in the group's order."""
        return list(self._mesh.ranks)

    @property
    def mailbox(self) -> Mailbox:
        return self._mailbox

    def abort(self) -> None:
        """End what waits, on all ranks."""
        self.fail(DistBackendError(f"rank {self._mesh.me} aborted group {self.group_name}"))

    def shutdown(self) -> None:
        """End the connections; nothing can be called afterwards."""
        self._mesh.fail(DistBackendError(f"group {self.group_name} was destroyed"))
        self._queue.put(None)
        self._mailbox.close()
        self._mesh.close()

    def __repr__(self) -> str:
        return (
            f"<ProcessGroup {self.group_name} ({self.backend}): rank {self.rank()} of "
            f"{self.size()}, ranks {self._mesh.ranks}>"
        )

    # -- running ---------------------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """A failure that this rank saw: all members hear of it."""
        if self._mesh.error is None:
            self._tell(self.group_name, str(error))
        self.heard(error)

    def heard(self, error: Exception) -> None:
        """A failure that another rank, or the watcher, saw."""
        self._mesh.fail(error)
        self._mailbox.fail(error)

    def mailbox_ends(self, rank: int, error: Exception) -> None:
        """A member has left: no message of it will come."""
        self._mailbox.ends(self._mesh.ranks.index(rank), error)

    def run(
        self,
        call: Call,
        body: Callable[[Algorithms], None],
        async_op: bool = False,
        result: Any = None,
        timeout: float | None = None,
    ) -> Work | None:
        """Carry out a collective: here and now, or behind those that were started before."""
        if self._process != os.getpid():
            raise RuntimeError(
                "this process was forked from one with a process group, and has no part in it: "
                "call init_process_group in it, with a rank of its own"
            )
        with self._lock:
            self._seq += 1
            seq = self._seq
            later = async_op or self._pending > 0
            if later:
                self._pending += 1
                work = Work(call.signature, result)
                self._queue.put((seq, call, body, timeout, work))
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._work, name=f"lucerne {self.group_name}", daemon=True
                    )
                    self._thread.start()
        if not later:
            self._execute(seq, call, body, timeout)
            return None
        if async_op:
            return work
        work.wait()
        return None

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            seq, call, body, timeout, work = item
            error: BaseException | None = None
            try:
                self._execute(seq, call, body, timeout)
            except BaseException as caught:
                error = caught
            with self._lock:
                self._pending -= 1
            work.finish(error)

    def _execute(
        self,
        seq: int,
        call: Call,
        body: Callable[[Algorithms], None],
        timeout: float | None,
    ) -> None:
        mesh = self._mesh
        with self._turn:
            mesh.begin(seq, call)
            self.algorithms.begin(seq, mesh.timeout if timeout is None else timeout)
            mesh.board.enters(mesh.name, seq, call.signature, call.line)
            try:
                if mesh.error is not None:
                    raise mesh.error
                self._body(seq, call, body)
            except DistBackendError as error:
                self.fail(error)
                raise DistBackendError(str(error)) from None
            except BaseException as error:
                self.fail(
                    DistBackendError(
                        f"rank {mesh.me} ended {call.signature} at {call.line} by "
                        f"{type(error).__name__}: {error}"
                    )
                )
                raise
            finally:
                mesh.board.leaves()

    def _body(self, seq: int, call: Call, body: Callable[[Algorithms], None]) -> None:
        """Carry it out; a profile sees it under torch's name."""
        if Watch.current is None:
            body(self.algorithms)
            return
        seen = {
            "Group": self._mesh.name, "Number": seq, "Call": call.signature, "Line": call.line,
        }  # fmt: skip
        name = f"gloo:{call.signature.partition(' ')[0]}"
        watched(name, COLLECTIVE, lambda: body(self.algorithms), seen)
