"""`lucerne._higher_order_ops`: control flow under the names PyTorch has it."""

from lucerne._src.control_flow import associative_scan as associative_scan
from lucerne._src.control_flow import cond as cond
from lucerne._src.control_flow import map as map
from lucerne._src.control_flow import scan as scan
from lucerne._src.control_flow import while_loop as while_loop
