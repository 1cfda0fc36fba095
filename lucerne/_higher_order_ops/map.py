"""`lucerne._higher_order_ops.map`."""

from lucerne._src.control_flow import map as map
