"""`lucerne._higher_order_ops.cond`."""

from lucerne._src.control_flow import cond as cond
