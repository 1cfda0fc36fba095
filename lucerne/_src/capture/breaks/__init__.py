"""Graph breaks: what a graph can't hold (`reasons`), and functions of several graphs (`resume`).

`call_policy` decides which calls are entered, by `purity` and what `native_callbacks` may run.
"""
