"""The tests, as a package, so that `python -m tests.conformance` works from a checkout."""
