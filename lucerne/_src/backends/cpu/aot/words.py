"""What lies where in the memory of a model and of a context, in words, and in the tables."""

from __future__ import annotations

from lucerne._src.backends.contract.machines import CANT_RUN_HERE

# A model: its head, then packed weights from layout.HEAD_BYTES on.
MODEL_WEIGHTS = 0

# A context: its head, the places of its results, room for flags, blocks, scratch.
CONTEXT_MODEL, CONTEXT_VARIANT, CONTEXT_BASES = 0, 1, 2
CONTEXT_RESULTS = 8

# What a variant is.
TEMPLATE, TEMPLATE_BYTES, FIXED, FIXED_COUNT = 0, 1, 2, 3
INPUTS, INPUT_COUNT, RESULTS, RESULT_COUNT = 4, 5, 6, 7
STEPS, STEP_COUNT, FIRST_ERROR = 8, 9, 10
VARIANT_WORDS = 11

PATCH_WORDS, STEP_WORDS = 2, 2
BASE_SHIFT = 32
"""A patch: the word it writes, and from this bit on the number of its base; then the offset."""

FLAG_BYTES = 64

NO_SIZES, NOT_ALIGNED, NO_WEIGHTS, OTHER_WEIGHTS = -1, -2, -3, -4
NO_TILES, NO_INSTRUCTIONS = CANT_RUN_HERE
MESSAGES = {
    0: "no error",
    NO_SIZES: "the program was not built for these sizes",
    NOT_ALIGNED: "the memory is not aligned to 64 bytes",
    NO_WEIGHTS: "weights are expected: the program was built without any inside",
    OTHER_WEIGHTS: "these are not the weights that the program was built for: another header",
    NO_TILES: "the system does not let this process use the tiles (AMX) it was built for",
    NO_INSTRUCTIONS: "this processor lacks instructions that the program was built with",
}
