"""`lucerne.distributed.algorithms`."""
