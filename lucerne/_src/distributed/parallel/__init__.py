"""Training by several processes: gradients in buckets, shared statistics, sharded optimizers."""
