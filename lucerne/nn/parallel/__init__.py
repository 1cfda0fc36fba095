"""`lucerne.nn.parallel`: a module on several devices, or in several processes."""

from typing import Any

from lucerne._src.base.process import forks as _forks
from lucerne.nn.parallel.data_parallel import DataParallel as DataParallel
from lucerne.nn.parallel.data_parallel import data_parallel as data_parallel
from lucerne.nn.parallel.parallel_apply import parallel_apply as parallel_apply
from lucerne.nn.parallel.replicate import replicate as replicate
from lucerne.nn.parallel.scatter_gather import gather as gather
from lucerne.nn.parallel.scatter_gather import scatter as scatter


def __getattr__(name: str) -> Any:
    """Processes are loaded by those who use them: sockets and stores take their time."""
    if name in ("DistributedDataParallel", "DistributedDataParallelCPU", "distributed"):
        module = _forks.import_module("lucerne.nn.parallel.distributed")
        return module if name == "distributed" else module.DistributedDataParallel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
