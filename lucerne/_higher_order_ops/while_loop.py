"""`lucerne._higher_order_ops.while_loop`."""

from lucerne._src.control_flow import while_loop as while_loop
