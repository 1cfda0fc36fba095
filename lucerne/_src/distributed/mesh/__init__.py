"""Tensors over a mesh of devices that one process drives: the engine partitions every op."""
