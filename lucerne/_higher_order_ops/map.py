"""`lucerne._higher_order_ops.map`."""

from lucerne.control_flow import map as map
