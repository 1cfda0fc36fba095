"""Hooks of `DistributedDataParallel.register_comm_hook`: the mean as it is, or in 16 bits."""

from __future__ import annotations

from typing import Any

from lucerne._src.distributed.parallel.reducer import GradBucket
from lucerne._src.distributed.processes.collectives import all_reduce
from lucerne._src.distributed.processes.groups import member
from lucerne._src.futures import Future
from lucerne._src.tensor import api as lu


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Future[Any]:
    """The mean of a bucket over ranks, as without a hook."""
    return _mean(process_group, bucket.buffer(), bucket)


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Future[Any]:
    """The mean, sent as float16."""
    return _mean(process_group, bucket.buffer().to(lu.float16), bucket)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Future[Any]:
    """The mean, sent as bfloat16."""
    return _mean(process_group, bucket.buffer().to(lu.bfloat16), bucket)


def _mean(group: Any, tensor: Any, bucket: GradBucket) -> Future[Any]:
    pg = member(group)
    if pg is None:
        raise ValueError("this rank is not in the process group of the hook")
    with lu.no_grad():
        tensor.div_(pg.size())
    work = all_reduce(tensor, group=pg, async_op=True)

    def back(done: Future[Any]) -> Any:
        with lu.no_grad():
            bucket.buffer().copy_(done.value()[0])
        return bucket.buffer()

    return work.get_future().then(back)
