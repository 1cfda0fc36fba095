"""Eager operators where their answers were not torch's."""
