"""Kernels of sorting: `records` go by radix, in `rows` or one `long` row; `top` takes a few."""
