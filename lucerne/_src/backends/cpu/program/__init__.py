"""Whole programs: all kernels of a program laid out once, run by one call of machine code."""
