"""Symbolic shapes and numbers: what changes from call to call without another capture."""
