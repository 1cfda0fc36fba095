"""Kernels of indexing: gather, scatter, masks, searches. `walk` plans, `move` is the kernel."""
