"""`lucerne.fx`: programs as graphs that Python can read, change and run again.

`symbolic_trace` makes a GraphModule from a module or function; `Interpreter` and `Transformer` walk
its graph; `replace_pattern` rewrites it; `draw` shows it. See docs/guide/fx.md.
"""

from lucerne.fx import _compatibility as _compatibility
from lucerne.fx import experimental as experimental
from lucerne.fx import passes as passes
from lucerne.fx._symbolic_trace import PH as PH
from lucerne.fx._symbolic_trace import ProxyableClassMeta as ProxyableClassMeta
from lucerne.fx._symbolic_trace import Tracer as Tracer
from lucerne.fx._symbolic_trace import symbolic_trace as symbolic_trace
from lucerne.fx._symbolic_trace import wrap as wrap
from lucerne.fx.codegen import CodeGen as CodeGen
from lucerne.fx.drawing import draw as draw
from lucerne.fx.graph import Graph as Graph
from lucerne.fx.graph_module import GraphModule as GraphModule
from lucerne.fx.interpreter import Interpreter as Interpreter
from lucerne.fx.interpreter import Transformer as Transformer
from lucerne.fx.node import Node as Node
from lucerne.fx.node import has_side_effect as has_side_effect
from lucerne.fx.node import map_aggregate as map_aggregate
from lucerne.fx.node import map_arg as map_arg
from lucerne.fx.one_ir import from_ir as from_ir
from lucerne.fx.one_ir import to_ir as to_ir
from lucerne.fx.proxy import Proxy as Proxy
from lucerne.fx.proxy import TraceError as TraceError
from lucerne.fx.subgraph_rewriter import replace_pattern as replace_pattern
from lucerne.fx.subgraph_rewriter import (
    replace_pattern_with_filters as replace_pattern_with_filters,
)
