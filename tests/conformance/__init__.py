"""Conformance of Lucerne with PyTorch, measured by PyTorch's own op database (see README.md)."""
