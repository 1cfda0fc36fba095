"""Compiled code under `detect_nonfinite` and anomaly mode: it stays compiled, and what it gives is
looked at. Only when something is not finite, the call is made once more as it is written."""
