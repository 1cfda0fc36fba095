"""Ranks against gloo, against mistakes, kills and strangers: `python -m tests.processes`."""
