"""`lucerne.distributed`: what programs ask before they talk to other processes. One runs alone."""

from __future__ import annotations

from typing import Any, NoReturn


def is_available() -> bool:
    return False


def is_initialized() -> bool:
    return False


def is_nccl_available() -> bool:
    return False


def is_gloo_available() -> bool:
    return False


def is_mpi_available() -> bool:
    return False


def is_torchelastic_launched() -> bool:
    return False


def init_process_group(*args: Any, **kwargs: Any) -> NoReturn:
    """Refuses: there is nothing to talk with."""
    raise NotImplementedError(
        "Lucerne has no distributed training yet: ask torch.distributed.is_available() first, and "
        "train in one process."
    )


def _no_group(*args: Any, **kwargs: Any) -> NoReturn:
    raise ValueError(
        "Default process group has not been initialized, please call init_process_group."
    )


get_rank = get_world_size = barrier = all_reduce = all_gather = broadcast = _no_group
destroy_process_group = reduce = gather = scatter = _no_group
