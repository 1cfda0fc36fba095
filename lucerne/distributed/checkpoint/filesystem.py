"""`lucerne.distributed.checkpoint.filesystem`."""

from __future__ import annotations

from lucerne._src.distributed.checkpoint.saving import FileSystemReader as FileSystemReader
from lucerne._src.distributed.checkpoint.saving import FileSystemWriter as FileSystemWriter
