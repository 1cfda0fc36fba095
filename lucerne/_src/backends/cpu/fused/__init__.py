"""Kernels of fused groups: element-wise ops, folds and views as one program over axes.

`fuse` begins; `program` reads a graph as expressions over axes, `layout` chooses loops, lanes
and how work is split, `passes` says what is computed in which walk, `rows` and `unit` write the
code, folds are `monoids`. `account` tells the verifier (`ir/checks/index_maps.py`) what the loops
go through.
"""
