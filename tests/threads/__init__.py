"""Several threads at once: gradients added to one leaf, and forks beside threads that are busy."""
