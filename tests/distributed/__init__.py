"""Process groups, DistributedDataParallel, the launcher and checkpoints of several ranks."""
