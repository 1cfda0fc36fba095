"""Proofs about the CPU engine, too long for tests: see `python -m tests.cpu.proof --help`."""
