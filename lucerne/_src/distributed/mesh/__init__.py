"""Tensors over a mesh of devices that one program drives: the engine partitions every op."""
