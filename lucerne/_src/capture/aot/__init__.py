"""The backward pass ahead of time: a joint graph, cut in two (`split`), and what it is when little
is asked.
"""
