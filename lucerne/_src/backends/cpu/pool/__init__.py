"""Kernels over windows: means, maxima and interpolation."""
