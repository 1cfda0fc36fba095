"""Several processes as one program: groups, collectives, launcher, checkpoints."""
