"""Guards: what a capture has taken from outside, and how the next call is asked whether it is
still so.

`sources` know where something was found; `reachable`, `read_log`, `frame_reads`, `tensor_reads`
and `implicit` collect what counts, `prune` leaves the rest out, `codegen` writes the check as a
function.
"""
