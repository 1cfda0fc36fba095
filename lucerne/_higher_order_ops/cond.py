"""`lucerne._higher_order_ops.cond`."""

from lucerne.control_flow import cond as cond
