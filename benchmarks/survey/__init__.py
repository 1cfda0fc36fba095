"""Every op beside PyTorch: `python -m benchmarks.survey` (see `__main__`)."""
