"""Stubs: what editors and type checkers read of the names that are made when the package loads.

`python -m tools.stubs` writes them; a test holds them fresh.
"""
