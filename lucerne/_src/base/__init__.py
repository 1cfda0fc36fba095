"""L0: the words everything else is written in. Standard library and NumPy only."""
