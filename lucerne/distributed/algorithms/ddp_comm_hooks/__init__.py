"""`lucerne.distributed.algorithms.ddp_comm_hooks`."""
