"""The tests, as a package, so that `python -m tests.conformance` works from a checkout."""

import os

# Programs that an earlier run has stored would hide what a test is about. Before Lucerne is
# imported, for commands (`python -m tests...`) and their subprocesses too.
os.environ.setdefault("LUCERNE_PROGRAM_CACHE", "0")
# What is compiled stays so, whether it pays or not (test_payoff.py and `programs.pays` want both).
os.environ.setdefault("LUCERNE_PAYOFF_CALLS", "0")
