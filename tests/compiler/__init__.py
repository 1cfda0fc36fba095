"""The proof of the compiler: random programs, rewrites that must agree, and planted bugs.

python -m tests.compiler.fuzz --cases 2000 [--seed S] [--mode bitwise|default]
python -m tests.compiler.rewrites --cases 500
python -m tests.compiler.mutants
"""
