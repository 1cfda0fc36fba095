"""Tile kernels: a table of kernels, and what must hold for each of them."""
