"""Forward mode and the transforms of `lucerne.func` that differentiate."""
