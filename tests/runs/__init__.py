"""Training runs killed and resumed: see `__main__`."""
