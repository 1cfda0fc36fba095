"""`lucerne._higher_order_ops.scan`."""

from lucerne._src.control_flow import scan as scan
