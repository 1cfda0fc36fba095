"""Starting worker processes: which way, and with what.

The ways, and why the default is what it is:

- `fork`: workers are copies of the program, so they see all that it set and defined, under its
  `if __name__ == "__main__":` too, and nothing is pickled. A thread of the program (not of Lucerne,
  see `base.forks`) that held a lock leaves it locked for ever in the worker.
- `forkserver`: a small helper process imports Lucerne once and has no threads; workers are forked
  from it. They start in milliseconds, inherit no lock that some thread of the program held at the
  moment, and no memory of it: they import the script again. The dataset is pickled once; large
  arrays in it lie in one block that all workers share (copy on write).
- `spawn`: a new interpreter for each worker; slow to start.

Without a choice of the user it is `fork` on Linux, as in PyTorch: results must not depend on how
workers start. Elsewhere, where libraries of the system don't bear a fork, it is `forkserver`,
unless the dataset can't be pickled or the script can't be imported again.
"""

from __future__ import annotations

import ast
import io
import multiprocessing as mp
import os
import socket
import sys
import threading
import warnings
from functools import cache
from multiprocessing import forkserver, process, reduction
from multiprocessing.context import set_spawning_popen
from pathlib import Path
from typing import Any

import numpy as np

from lucerne._src.base.process import notices
from lucerne._src.base.process.shared_memory import AVAILABLE, SharedBlock
from lucerne.utils.data import wire, worker
from lucerne.utils.data.worker import Job, Setup

if sys.platform != "win32":
    from multiprocessing import popen_forkserver, util

_OUT_OF_PICKLE = 1 << 16
"""Jobs with fewer bytes of arrays are sent whole."""


@cache
def _server() -> Any:
    """Our own fork server: the program's one keeps its list of modules."""
    made = forkserver.ForkServer()
    made.set_forkserver_preload(["lucerne.utils.data.worker"])
    return made


def ensure_server() -> int:
    """Start the fork server if it does not run; its process id."""
    chosen: Any = mp.get_start_method(allow_none=True)
    _server().ensure_running()
    if chosen is None:  # asking for a server must not decide for the program
        mp.set_start_method(None, force=True)
    found: int = _server()._forkserver_pid
    return found


def _preparation(name: str, with_main: bool) -> dict[str, Any]:
    """What a new process must set up before the pickle of its work can be read."""
    here = process.ORIGINAL_DIR  # type: ignore[attr-defined]
    data: dict[str, Any] = {
        "name": name,
        "authkey": process.current_process().authkey,
        "sys_path": [here if path == "" else path for path in sys.path],
        "sys_argv": sys.argv,
        "orig_dir": here,
        "dir": os.getcwd(),
    }
    if with_main:
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        path = getattr(main, "__file__", None)
        if spec is not None and spec.name is not None:
            data["init_main_from_name"] = spec.name
        elif path is not None:
            data["init_main_from_path"] = os.path.normpath(os.path.join(here or "", path))
    return data


if sys.platform != "win32":

    class _Popen(popen_forkserver.Popen):
        """Starts a process through our server, importing the script only where it is needed."""

        def _launch(self, process_obj: Any) -> None:
            file = io.BytesIO()
            set_spawning_popen(self)
            try:
                reduction.dump(_preparation(process_obj.name, process_obj.with_main), file)
                reduction.dump(process_obj, file)
            finally:
                set_spawning_popen(None)
            ensure_server()
            self.sentinel, data_end = _server().connect_to_new_process(self._fds)  # type: ignore[attr-defined]
            kept = os.dup(data_end)
            self.finalizer = util.Finalize(self, util.close_fds, (kept, self.sentinel))  # type: ignore[attr-defined]
            with open(data_end, "wb", closefd=True) as pipe:
                pipe.write(file.getbuffer())
            self.pid = forkserver.read_signed(self.sentinel)

    class _ServedProcess(process.BaseProcess):
        _start_method = "forkserver"
        with_main = False

        @staticmethod
        def _Popen(process_obj: Any) -> Any:
            return _Popen(process_obj)


def main_is_guarded() -> bool:
    """Whether the script can be imported without running: it asks for its `__name__`."""
    main = sys.modules["__main__"]
    if getattr(main, "__spec__", None) is not None:
        path = main.__spec__.origin  # type: ignore[union-attr]
    else:
        path = getattr(main, "__file__", None)
    if not path or not os.path.exists(path):
        return False
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    tests = [node.test for node in tree.body if isinstance(node, ast.If)]
    names = [n.id for test in tests for n in ast.walk(test) if isinstance(n, ast.Name)]
    return "__name__" in names or all(
        isinstance(
            node,
            ast.Import
            | ast.ImportFrom
            | ast.FunctionDef
            | ast.ClassDef
            | ast.Assign
            | ast.AnnAssign,
        )
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in tree.body
    )


def _is_foreign(thread: threading.Thread) -> bool:
    """A thread other than this one that may hold locks at a fork; multiprocessing's are ready."""
    target = getattr(thread, "_target", None)
    own = str(getattr(target, "__module__", "")).startswith("multiprocessing.")
    return thread is not threading.current_thread() and not own


class Launcher:
    """Starts the workers of one loader, and starts them again when they died."""

    def __init__(self, job: Job, context: Any = None) -> None:
        """`context` is what the user chose: a multiprocessing context, or None."""
        self.job = job
        self.packed: wire.Packed | None = None
        self.block: SharedBlock | None = None
        self.layout: wire.Layout = []
        self.with_main = True
        self.chosen = context
        if context is None:
            chosen = mp.get_start_method(allow_none=True)
            if chosen not in (None, "fork"):  # fork may just be the system's habit, and no choice
                context = mp.get_context(chosen)
        self.method: str = "" if context is None else context.get_start_method()
        self.context = context
        self._decide()

    def _decide(self) -> None:
        if not self.method and sys.platform == "linux":
            self.method = "fork"
        elif self.method == "fork":
            self._warn_of_threads()
        if self.method != "fork":
            reason = self._pack()
            if not self.method:
                self.method = "forkserver"
                if sys.platform == "win32":
                    self.method = "spawn"
                elif reason or (self.with_main and not main_is_guarded()):
                    self.method = "fork"
            elif reason:
                self.with_main = True  # multiprocessing will pickle the job itself, or say why not
        if self.method == "fork":
            self.packed = None
        elif self.packed is not None and AVAILABLE:
            self._share()

    def _pack(self) -> Exception | None:
        """Pickle the job; what stood in the way if it can't be."""
        try:
            self.packed = wire.Packed(self.job)
        except Exception as error:
            return error
        self.with_main = b"__main__" in self.packed.data
        return None

    def _share(self) -> None:
        """One block with the job's arrays, for all workers."""
        assert self.packed is not None
        buffers = self.packed.buffers
        layout, total = wire.lay_out(buffers)
        if total < _OUT_OF_PICKLE:
            return
        try:
            block = SharedBlock.make(total)
        except OSError:
            return
        wire.place(buffers, layout, block.array)
        self.block, self.layout = block, layout
        self.packed.buffers = []

    def _warn_of_threads(self) -> None:
        others = [t.name for t in threading.enumerate() if _is_foreign(t)]
        if others:
            notices.warn(
                f"DataLoader workers are forked while other threads run ({', '.join(others[:4])}): "
                "a lock that one of them holds just now stays locked in the worker. With "
                'multiprocessing_context="forkserver" workers inherit no locks (the dataset and '
                "collate_fn must be picklable, and the script's code under "
                '`if __name__ == "__main__":`); or start the loader before the threads.'
            )

    # ---- starting ----

    def start(self, worker_id: int, sock: socket.socket, close: list[int]) -> Any:
        """A new worker process, with its end of the channel."""
        job = self.job if self.packed is None else None
        name = f"DataLoader-{worker_id}"
        if self.method == "forkserver" and sys.platform != "win32":
            made = _ServedProcess(
                target=worker.main, args=(sock, ensure_server(), [], job), name=name, daemon=True
            )
            made.with_main = self.with_main
            made.start()
            return made
        context: Any = self.context or mp.get_context(self.method)
        parent = os.getpid() if threading.current_thread() is threading.main_thread() else 0
        files = close if self.method == "fork" else []
        spawned = context.Process(
            target=worker.main, args=(sock, parent, files, job), name=name, daemon=True
        )
        with warnings.catch_warnings():
            if self.method == "fork":  # Python counts our threads, which bear it
                warnings.filterwarnings("ignore", "This process .* is multi-threaded")
            spawned.start()
        return spawned

    def setup(self, worker_id: int, page: SharedBlock | None) -> tuple[bytes, list[int]]:
        """The first message to the worker, and its files."""
        made = Setup(worker_id, page is not None)
        files = [page.fd] if page is not None else []
        if self.packed is not None:
            made.job = self.packed.data
            if self.block is not None:
                made.layout, made.block_bytes = self.layout, self.block.nbytes
                files.append(self.block.fd)
            else:
                made.inline = [np.frombuffer(b, np.uint8).tobytes() for b in self.packed.buffers]
            files += [block.fd for block in self.packed.shared]
        return wire.message(made), files
