"""`lucerne.signal`: window functions."""

from lucerne.signal import windows as windows
