"""Weights in few bits: the op, the modules, files of others."""
