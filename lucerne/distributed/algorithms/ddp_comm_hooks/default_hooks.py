"""Hooks for `DistributedDataParallel.register_comm_hook`."""

from __future__ import annotations

from lucerne._src.distributed.parallel.hooks import allreduce_hook as allreduce_hook
from lucerne._src.distributed.parallel.hooks import bf16_compress_hook as bf16_compress_hook
from lucerne._src.distributed.parallel.hooks import fp16_compress_hook as fp16_compress_hook
