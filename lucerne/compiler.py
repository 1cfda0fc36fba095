"""`lucerne.compiler`: `compile`, and what programs say to it about their own functions."""

from __future__ import annotations

from lucerne._src.compiler import CompileBudgetError as CompileBudgetError
from lucerne._src.compiler import OptimizedModule as OptimizedModule
from lucerne._src.compiler import allow_in_graph as allow_in_graph
from lucerne._src.compiler import assume_constant_result as assume_constant_result
from lucerne._src.compiler import budget as budget
from lucerne._src.compiler import compile as compile
from lucerne._src.compiler import cudagraph_mark_step_begin as cudagraph_mark_step_begin
from lucerne._src.compiler import disable as disable
from lucerne._src.compiler import is_compiling as is_compiling
from lucerne._src.compiler import is_dynamo_compiling as is_dynamo_compiling
from lucerne._src.compiler import is_exporting as is_exporting
from lucerne._src.compiler import ledger as ledger
from lucerne._src.compiler import list_backends as list_backends
from lucerne._src.compiler import load_cache_artifacts as load_cache_artifacts
from lucerne._src.compiler import mark_dynamic as mark_dynamic
from lucerne._src.compiler import program_cache as program_cache
from lucerne._src.compiler import register_backend as register_backend
from lucerne._src.compiler import reset as reset
from lucerne._src.compiler import save_cache_artifacts as save_cache_artifacts
from lucerne._src.compiler import substitute_in_graph as substitute_in_graph
