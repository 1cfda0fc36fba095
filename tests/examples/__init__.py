"""The examples, run on Lucerne and on PyTorch: see `__main__`."""
