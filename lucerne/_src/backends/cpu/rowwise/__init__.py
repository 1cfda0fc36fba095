"""Kernels that walk rows in more than one pass: norms and their gradients, cross entropy, scans."""
