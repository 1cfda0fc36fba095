"""Sparse tensors: what they are, how they are made, how layouts turn into each other, and the ops
they answer (`ops` is loaded with the first of them)."""
