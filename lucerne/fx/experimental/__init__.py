"""Tracing at the level of ops."""

from lucerne.fx.experimental import proxy_tensor as proxy_tensor
