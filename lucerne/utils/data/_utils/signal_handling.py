"""Signals in worker processes (see `lucerne.multiprocessing.signals`)."""

from lucerne.multiprocessing.signals import die_with as die_with
from lucerne.multiprocessing.signals import (
    leave_interrupts_to_parent as leave_interrupts_to_parent,
)
