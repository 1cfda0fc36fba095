"""Measurements against PyTorch: `python -m benchmarks` lists them, `... NAME` runs one."""
