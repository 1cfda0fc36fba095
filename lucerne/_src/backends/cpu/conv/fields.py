"""Names of the words in the tables that plans fill and tasks read. Strides count elements of the
tensor or buffer unless a comment says bytes; offsets of workspace areas are bytes."""

from __future__ import annotations

from lucerne._src.backends.cpu.conv.epilogue import AFTER
from lucerne._src.backends.cpu.conv.launch import words
from lucerne._src.backends.cpu.conv.microkernel import JOB
from lucerne._src.backends.cpu.conv.padded import copy_words

GATHER = words(
    "GROUPS LANES REDUCED PANELS",
    "N A_D A_H A_W",  # images, and outputs of the largest class
    "IMAGES ROWS COLS IMAGE_BLOCKS ROW_BLOCKS COL_BLOCKS",  # of a task; how many of those
    "X_GROUP",
    "IN_D IN_H IN_W LOW_D LOW_H LOW_W SPAN_D SPAN_H SPAN_W",  # steps, least offsets, taps' spread
    "Y_N Y_C Y_D Y_H Y_W Y_GROUP OUT_D OUT_H OUT_W",  # the target
    "STEP_D STEP_H STEP_W",  # outputs of a class are so far apart
    "T_IMAGE T_SLICE T_ROW",  # pixels of the block of results before it is written out
    "WEIGHTS START",  # packed weights; what sums start from
    "BUFFER BUFFER_SIZE RESULTS RESULTS_SIZE PIXELS PIXELS_SIZE",
    "PACKING PACKING_SIZE PACKING_CHANNELS",
    "CLASSES JOBS",  # place of the list of jobs' places
    "KERNELS",  # place of the addresses of micro-kernels, by vectors - 1 and height
    "TRANSPOSE_OUT TRANSPOSE_W",  # addresses
    "TAPS TAP_LIST W_LANE W_REDUCED W_GROUP REDUCED_BLOCKS REDUCED_BLOCK TAP_COUNT B_STEP",
    *AFTER,
    *copy_words("X"),
)

GATHER_JOB = [
    *JOB,
    *words("W_AT W_PANEL X_H X_W COUNT_D COUNT_H COUNT_W OUT_AT OUT_N OUT_D OUT_H OUT_W"),
]  # W_AT, W_PANEL in elements; the others after them in bytes
OFFSETS = len(GATHER_JOB)
"""Run offsets follow the words of a job."""

TAP = words("SOURCE TARGET PANEL")
"""Of each tap of the weights: where it is read, where it is packed, and the step to the same tap
in the next panel."""

TILED = [
    *GATHER,
    *words(
        "PARTS PARTS_SIZE P_IMAGE P_VARIANT P_ROW P_PIXEL P_PART",  # numbers in parts; bytes
        "VARIANTS VARIANT_LIST V_ROW_STEP",  # copies of a block, each moved; how rows grow with it
        "V_H V_W FLAT",  # elements between rows and columns of a variant; is it one long row
        "K_BLOCK K_BLOCKS",  # summed channels that are dealt with at a time
        "TILE_NOW TILE_NOW_SIZE TILE_SUMS TILE_SUMS_SIZE S_PANEL S_CLASS S_PAIR",  # sums; bytes
        "TILES ASIDE ASIDE_SIZE",
    ),
]
TILED_JOB = [*GATHER_JOB, *words("W_TAPS FULL_JOB LAST_JOB")]
"""W_AT and W_PANEL in bytes; places of the micro-kernel's jobs for a whole block of channels and
for the last one."""

TILED_TAP = [*TAP, *words("K_STEP INDEX")]
"""TARGET, PANEL and K_STEP (to the next block of channels) in bytes; which tap of its class."""

VARIANT = words("SOURCE EXTRA")
"""Of each copy: the element of the padded block it starts at, rows besides those of the outputs."""
