"""`lucerne.distributed.checkpoint`: the state of several ranks as one checkpoint (a window)."""

from __future__ import annotations

from lucerne._src.distributed.checkpoint.parts import TensorPart as TensorPart
from lucerne._src.distributed.checkpoint.saving import CheckpointException as CheckpointException
from lucerne._src.distributed.checkpoint.saving import FileSystemReader as FileSystemReader
from lucerne._src.distributed.checkpoint.saving import FileSystemWriter as FileSystemWriter
from lucerne._src.distributed.checkpoint.saving import async_save as async_save
from lucerne._src.distributed.checkpoint.saving import load as load
from lucerne._src.distributed.checkpoint.saving import save as save

__all__ = [
    "CheckpointException",
    "FileSystemReader",
    "FileSystemWriter",
    "TensorPart",
    "async_save",
    "load",
    "save",
]
