"""`lucerne serve`."""
