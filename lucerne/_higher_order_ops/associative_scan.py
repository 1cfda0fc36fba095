"""`lucerne._higher_order_ops.associative_scan`."""

from lucerne.control_flow import associative_scan as associative_scan
