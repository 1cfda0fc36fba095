"""Two calls share a plan only if their arguments are equal."""
