"""The device `xla`. Where jax is not installed only `test_absent.py` runs: the rest says why not.

`python -m tests.xla` runs all of it, long training runs and the conformance of tier T0 included.
"""
