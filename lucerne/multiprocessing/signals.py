"""Signals in processes that a program starts."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import threading

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)


def leave_interrupts_to_parent() -> None:
    """Ctrl-C reaches the whole group: the parent decides what becomes of its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def die_of_crashes() -> None:
    """A crash ends this process, whatever handlers a library has put into the one it was forked
    from (OpenCL's go on after a signal that was sent)."""
    shows_traces = faulthandler.is_enabled()
    faulthandler.disable()
    for number in _CRASHES:
        signal.signal(number, signal.SIG_DFL)
    if shows_traces and sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)


def die_with(parent: int) -> None:
    """Be killed by the system when the process that started this one dies (Linux only)."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call
        os._exit(1)


def die_with_parent_of(parent: int) -> int:
    """In a parent: what to pass to the process it starts. There (with that): die with the parent.

    The system watches the thread that starts a process, so only the main thread can promise it.
    """
    if parent:
        die_with(parent)
        return 0
    return os.getpid() if threading.current_thread() is threading.main_thread() else 0
