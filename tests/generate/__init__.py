"""`lucerne.generate`."""
