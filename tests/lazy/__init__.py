"""Lazy mode: everything as eager has it, with fewer and larger kernels."""
