"""Kernels that draw: PyTorch's generator in vectors, and counted words for compiled code."""
