"""Tracing: one call of a function becomes a graph, with all that is needed to repeat the call.

`capture` begins it, `recorder` writes the ops down on tensors without bytes (`fake`); a
function that is one graph runs through `full_graph`, one with breaks through `partial_graph`.
"""
