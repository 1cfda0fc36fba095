"""Tile kernels: `lucerne.tiles` shows what users write them with."""
