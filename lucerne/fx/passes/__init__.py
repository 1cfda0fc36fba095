"""Passes over graphs: shapes, drawing, splitting."""

from lucerne.fx.passes import graph_drawer as graph_drawer
from lucerne.fx.passes import infra as infra
from lucerne.fx.passes import shape_prop as shape_prop
from lucerne.fx.passes import split_module as split_module
from lucerne.fx.passes import utils as utils
