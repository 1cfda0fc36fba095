"""Nothing is accepted and ignored: a walk over every public signature."""
