# ruff: noqa: E501 - rows of a table
"""More planted bugs, as in `tests.compiler.planted`: rules, kernels of whole ops, the optimizers' kernel."""

from __future__ import annotations

from tests.compiler.planted import ARITHMETIC, MOVES, Mutant

VIEWS = "_src/transforms/rules/views.py"
OPTIMIZERS = "_src/backends/cpu/elementwise/optimizers.py"
NORM = "_src/backends/cpu/rowwise/layer_norm.py"
SCAN = "_src/backends/cpu/rowwise/scan.py"
ABSENT = "_src/transforms/absent.py"

MORE: tuple[Mutant, ...] = (
    Mutant("a quotient by two is the dividend", ARITHMETIC,
           "_category(node) == dt.FLOAT and _is(look.number(b), 1)", "_category(node) == dt.FLOAT and _is(look.number(b), 2)"),
    Mutant("a sum over repeats counts one too few", ARITHMETIC,
           "return NewNode(_MUL, (source, count)) if count < 1 << 24 else None", "return NewNode(_MUL, (source, count - 1)) if count < 1 << 24 else None"),
    Mutant("twice the same op is the op once", ARITHMETIC,
           "return None if inner is None else inner.args[0]", "return None if inner is None else node.args[0]"),
    Mutant("two orders are the second one", VIEWS,
           "order = tuple(before[d] for d in _order(node))", "order = tuple(_order(node))"),
    Mutant("a view with an offset is its source", VIEWS,
           "return None if geometries(node)[0].offset else source", "return source"),
    Mutant("padding in front alone counts", MOVES,
           "return None if any(low) or any(high) or any(interior) else node.args[0]", "return None if any(low) or any(interior) else node.args[0]"),
    Mutant("a filled tensor is one more", MOVES,
           "_fits(number, meta.dtype):\n        return None\n    return NewNode(FILLED, filled_args(number, meta))",
           "_fits(number, meta.dtype):\n        return None\n    return NewNode(FILLED, filled_args(number + 1, meta))"),
    Mutant("a copy takes the old value", MOVES,
           "    source = node.args[1]\n    return source if meta_of(source) is not None else None",
           "    source = node.args[0]\n    return source if meta_of(source) is not None else None"),
    Mutant("decay comes twice", OPTIMIZERS, "p = p * keep", "p = p * keep * keep"),
    Mutant("the second moment forgets its square", OPTIMIZERS, "v = f.mul_add(old2, v, new2 * g * g)", "v = f.mul_add(old2, v, new2 * g)"),
    Mutant("momentum is not kept", OPTIMIZERS, "f.mul_add(fast, loaded[2], part * g)", "f.mul_add(fast, loaded[1], part * g)"),
    Mutant("only one of the partial sums of a row", NORM,
           "total = total + loop.results[u * count + k]", "total = total + loop.results[k]"),
    Mutant("the tail of a row is not masked", NORM, "c = f.select(mask, c, 0.0)", "c = f.select(mask, c, c)"),
    Mutant("units of a scan in the wrong strip", SCAN, "rest = number // self.strips", "rest = number % self.strips"),
    Mutant("a sum without one summand is not there", ABSENT,
           "self._here[node.outputs[0].index] = self._here[arriving[0].index]", "self._here[node.outputs[0].index] = None"),
    Mutant("gradients take each other's place", ABSENT,
           "None if found is None else len(outputs))", "None if found is None else max(len(outputs) - 1, 0))"),
)  # fmt: skip
