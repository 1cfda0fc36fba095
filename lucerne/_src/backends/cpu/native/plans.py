"""Plans as the native dispatcher reads them: one block of words per plan.

Word numbers are below. A plan either runs a kernel (ENTRY) on fresh results or makes a view.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.cpu.runtime.kernel import signed

ENTRY, OUTPUTS, TENSORS, WORKSPACE, WORDS, TEMPLATE, RELEASE, FLAGS, FAIL, OP = range(10)
OUT_META = 10
OUT_NBYTES = 14
MAX_OUTPUTS = 4
ARGUMENTS = 18
INPUTS = 19
NUMBERS_AT = 20
"""Where in the block the numbers begin."""
DELTA, STEP = 21, 22
"""Of a view: elements to add to the offset, and its steps ((op, arguments, None), ...)."""
DERIVABLE = 23
"""Mask of the arguments that have a derivative."""
LISTS, SMOOTH, SAVED_RESULTS = 24, 25, 26
"""Masks: the arguments that are lists of tensors; the results that can have a gradient; those
that backward reads."""
PARTS = 27
"""Of a call that makes several views: per view its meta, DELTA and STEP."""
SAVE_MASKS = 28
"""For each set of arguments that need a gradient (a mask): which arguments backward reads."""
MAX_GRAD_ARGUMENTS = 4
DESCRIPTORS = SAVE_MASKS + (1 << MAX_GRAD_ARGUMENTS)
"""Per input of the kernel: argument number, place in the list (-1: none), item size, letter. Of a
number in place of the size: the width of the integers it must be one of, in bits, below 0 if they
have no sign (then small negative numbers wrap); 0: any that fits a word."""
DESCRIPTOR_WORDS = 4

RECORDS, VIEW, POINTWISE, SEVERAL, ONLY_RECORDED = 1, 2, 4, 8, 16
"""FLAGS: may be recorded by autograd; is a view; results may be written over an input; is several
views; is for calls that are recorded (the others have something better in Python)."""
MAX_VIEWS = 32
LETTERS = {"t": 0, "f": 1, "i": 2, "c": 3}
MAX_WORDS = 192
RELEASE_ABOVE_NS = 50_000


class NativePlan:
    """The words, and everything they point to."""

    __slots__ = ("address", "kept", "slot", "words")

    def __init__(self, words: Sequence[int], kept: Any) -> None:
        self.words = (ctypes.c_int64 * len(words))(*words)
        self.address = ctypes.addressof(self.words)
        self.kept = kept
        self.slot = -1


def kernel_plan(
    op: Any,
    arguments: int,
    kernel: Any,
    inputs: Sequence[tuple[int, int, int, str]],
    metas: Sequence[Any],
    flags: int,
    derivable: int,
    save_masks: Sequence[int],
    lists: int,
    smooth: int,
    saved_results: int,
) -> NativePlan | None:
    """The words of a plan that runs `kernel`, or None when it does not fit the dispatcher.

    `inputs`: per tensor or number the kernel reads: argument, place in a list or -1, item size (of
    a number: which it may be, see DESCRIPTORS), letter ("t" for tensors).
    """
    if len(metas) > MAX_OUTPUTS or kernel.words > MAX_WORDS or not metas:
        return None
    numbers_at = kernel.outputs + kernel.tensors + 1
    template = (ctypes.c_int64 * kernel.words)()
    template[kernel.words - len(kernel.extra) :] = [signed(x) for x in kernel.extra]
    words = [0] * (DESCRIPTORS + DESCRIPTOR_WORDS * len(inputs))
    words[ENTRY], words[OUTPUTS], words[TENSORS] = kernel.entry, len(metas), kernel.tensors
    words[WORKSPACE], words[WORDS] = kernel.workspace, kernel.words
    words[TEMPLATE] = ctypes.addressof(template)
    words[RELEASE] = int(kernel.work > RELEASE_ABOVE_NS)
    words[FLAGS], words[FAIL], words[OP] = flags, id(kernel.fail) if kernel.fail else 0, id(op)
    for i, meta in enumerate(metas):
        words[OUT_META + i] = id(meta)
        words[OUT_NBYTES + i] = meta.span * meta.dtype.itemsize
    words[ARGUMENTS], words[INPUTS], words[NUMBERS_AT] = arguments, len(inputs), numbers_at
    words[DERIVABLE], words[LISTS], words[SMOOTH] = derivable, lists, smooth
    words[SAVED_RESULTS] = saved_results
    words[SAVE_MASKS : SAVE_MASKS + len(save_masks)] = save_masks
    for j, (argument, place, size, letter) in enumerate(inputs):
        at = DESCRIPTORS + j * DESCRIPTOR_WORDS
        words[at : at + DESCRIPTOR_WORDS] = [argument, place, size, LETTERS[letter]]
    return NativePlan(words, (op, kernel, template, tuple(metas)))


def view_plan(
    op: Any,
    arguments: int,
    meta: Any,
    delta: int,
    steps: Any,
    derivable: int,
    save_masks: Sequence[int],
) -> NativePlan:
    """The words of a plan that makes a view; of one step only can autograd keep a record."""
    words = [0] * (DESCRIPTORS + DESCRIPTOR_WORDS)
    flags = VIEW | RECORDS if len(steps) == 1 else VIEW
    words[OUTPUTS], words[FLAGS], words[OP] = 1, flags, id(op)
    words[OUT_META], words[ARGUMENTS] = id(meta), arguments
    words[DELTA], words[STEP], words[DERIVABLE] = delta, id(steps), derivable
    words[SAVE_MASKS : SAVE_MASKS + len(save_masks)] = save_masks
    return NativePlan(words, (op, meta, steps))


def views_plan(
    op: Any,
    arguments: int,
    parts: Sequence[tuple[Any, int, Any]],
    derivable: int,
    save_masks: Sequence[int],
) -> NativePlan | None:
    """The words of a plan that makes several views: (meta, delta, steps) each."""
    if not 0 < len(parts) <= MAX_VIEWS:
        return None
    listed = (ctypes.c_int64 * (3 * len(parts)))()
    for i, (meta, delta, steps) in enumerate(parts):
        listed[3 * i : 3 * i + 3] = [id(meta), delta, id(steps)]
    words = [0] * (DESCRIPTORS + DESCRIPTOR_WORDS)
    words[OUTPUTS], words[FLAGS], words[OP] = len(parts), VIEW | RECORDS | SEVERAL, id(op)
    words[ARGUMENTS], words[PARTS] = arguments, ctypes.addressof(listed)
    words[DERIVABLE], words[SMOOTH] = derivable, (1 << len(parts)) - 1
    words[SAVE_MASKS : SAVE_MASKS + len(save_masks)] = save_masks
    return NativePlan(words, (op, listed, tuple(parts)))
