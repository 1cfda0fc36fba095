"""`lucerne._higher_order_ops.while_loop`."""

from lucerne.control_flow import while_loop as while_loop
