"""Pairs: every ordered pair of small functions of one tensor, and random trees of them, compiled
against eager (`python -m tests.pairs --help`)."""
