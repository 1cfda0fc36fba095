"""When a profile waits, warms up and records: `schedule`, and the actions it names."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from lucerne._src.base.process import notices


class ProfilerAction(Enum):
    """What a profile does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class ProfilerActivity(Enum):
    """What a profile looks at. Only `CPU` happens here; PyTorch's other names are accepted."""

    CPU = 0
    XPU = 1
    CUDA = 2
    HPU = 3
    MTIA = 4
    PrivateUse1 = 5


class DeviceType(Enum):
    """Where an event ran. PyTorch has more; these are the ones its profiles tell apart."""

    CPU = 0
    CUDA = 1
    XPU = 12
    MTIA = 19
    PrivateUse1 = 20


Schedule = Callable[[int], ProfilerAction]


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Schedule:  # fmt: skip
    """A function from the number of a step to what is done in it.

    After `skip_first` steps it waits, warms up and records for so many steps, `repeat` times (0:
    for ever). `skip_first_wait` not 0: the first round begins without waiting.

    >>> plan = schedule(wait=1, warmup=1, active=2, repeat=1)
    >>> [plan(step).name for step in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    given = {"wait": wait, "warmup": warmup, "repeat": repeat, "skip_first": skip_first}
    wrong = {name: n for name, n in given.items() if n < 0}
    if wrong or active <= 0:
        raise AssertionError(
            f"Invalid profiler schedule arguments: wait, warmup, repeat and skip_first can't be "
            f"negative and active must be at least 1, but got {given | {'active': active}}"
        )
    if warmup == 0:
        notices.warn("Profiler won't be using warmup, this can skew profiler results", stacklevel=2)
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        if repeat and step >= repeat * length:
            return ProfilerAction.NONE
        place = step % length
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == length - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


def always(_: int) -> ProfilerAction:
    """Without a schedule everything is recorded."""
    return ProfilerAction.RECORD
