"""Checkpoints of several ranks: a file of each, and a manifest that is written last."""
