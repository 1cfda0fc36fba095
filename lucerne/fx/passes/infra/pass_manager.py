"""PassManager: passes one after another, until nothing changes or for a number of rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne.fx.passes.infra.pass_base import PassResult

Pass = Callable[[Any], PassResult | None]


class PassManager:
    """Runs passes in order; a message names the pass that failed.

    >>> import lucerne as torch
    >>> def clean(graph_module):
    ...     return PassResult(graph_module, graph_module.graph.eliminate_dead_code())
    >>> PassManager([clean])(torch.fx.symbolic_trace(lambda x: (x + 1, x)[1])).modified
    True
    """

    def __init__(
        self,
        passes: list[Pass] | None = None,
        constraints: list[Callable[[Pass, Pass], bool]] | None = None,
        steps: int | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
    ) -> None:
        self.passes: list[Pass] = passes or []
        self.constraints = constraints or []
        self.steps = steps or 1
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures

    def add_pass(self, _pass: Pass) -> None:
        self.passes.append(_pass)

    def add_constraint(self, constraint: Callable[[Pass, Pass], bool]) -> None:
        self.constraints.append(constraint)

    def validate_constraints(self) -> None:
        """Raise if a pass stands before one it must follow."""
        for constraint in self.constraints:
            for i, first in enumerate(self.passes):
                for second in self.passes[i + 1 :]:
                    if not constraint(first, second):
                        raise RuntimeError(
                            f"pass schedule constraint violated. Expected {_name(first)} before "
                            f"{_name(second)} by {_name(constraint)}"
                        )

    def check(self, module: Any) -> None:
        """Called after the passes (or after each): override it to look at the module."""

    def __call__(self, module: Any) -> PassResult:
        self.validate_constraints()
        changed = False
        for _ in range(self.steps):
            before = changed
            for run in self.passes:
                try:
                    result = run(module)
                except Exception as error:
                    raise RuntimeError(
                        f"An error occurred when running the {_name(run)!r} pass"
                    ) from error
                if not isinstance(result, PassResult):
                    raise TypeError(
                        f"The result of the pass {_name(run)} should be type PassResult. Please "
                        "wrap it with pass_result_wrapper()"
                    )
                module, changed = result.graph_module, changed or result.modified
                module.recompile()
                if self.run_checks_after_each_pass:
                    self.check(module)
            if changed is before:
                break
        return PassResult(module, changed)


def pass_result_wrapper(fn: Callable[[Any], Any]) -> Pass:
    """A function that returns a module, or changes the one it is given, as a pass."""

    def run(graph_module: Any) -> PassResult:
        result = fn(graph_module)
        if result is None:
            return PassResult(graph_module, True)
        return result if isinstance(result, PassResult) else PassResult(result, True)

    run.__name__ = _name(fn)
    return run


def _name(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)
