"""Measurements against PyTorch: `python benchmarks/suite.py`."""
