"""Shadow mode: eager beside compiled on the first calls, and who is to blame when they differ.

`state` puts the world back between two runs of one call, `observe` writes down what a call left
behind, `nearness` says what counts as equal, `replay` runs graphs node by node on the reference
backend, `stages` builds all graphs of a compilation again, `walk` runs a program step by step,
`blame` goes through them in order, `report` puts it into words, `shadowing` is what `compile`
calls.
"""
