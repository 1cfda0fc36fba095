"""`lucerne.utils.cpp_extension`: kernels in C and C++, compiled when they are loaded.

Sources are written against Apache TVM-FFI (the extra `cpp`), not against libtorch:
docs/extend/cpp.md shows how to port one.
"""

from __future__ import annotations

from lucerne.utils.cpp_extension.compiler import get_cxx_compiler as get_cxx_compiler
from lucerne.utils.cpp_extension.ffi import include_paths as include_paths
from lucerne.utils.cpp_extension.ffi import library_paths as library_paths
from lucerne.utils.cpp_extension.loading import load as load
from lucerne.utils.cpp_extension.loading import load_inline as load_inline
