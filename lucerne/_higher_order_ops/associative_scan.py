"""`lucerne._higher_order_ops.associative_scan`."""

from lucerne._src.control_flow import associative_scan as associative_scan
