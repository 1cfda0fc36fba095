"""Tensors and the world outside: Python data, NumPy, DLPack, other processes, torch's old names."""
