"""`lucerne._higher_order_ops.scan`."""

from lucerne.control_flow import scan as scan
