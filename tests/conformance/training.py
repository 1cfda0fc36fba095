"""M9 and M10: the tables of modules, optimizers and schedulers as runs of the harness.

Their entries are classes, not ops; a class that is missing has failed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from tests.conformance import catalog, foreach
from tests.conformance.bridge import Bridge
from tests.conformance.context import Limits
from tests.conformance.modules import check as module_check
from tests.conformance.modules import compiled as module_compiled
from tests.conformance.modules import errors as module_errors
from tests.conformance.modules import own as own_modules
from tests.conformance.modules import samples as modules
from tests.conformance.optimizers import check as optimizer_check
from tests.conformance.optimizers import errors as optimizer_errors
from tests.conformance.optimizers import samples as optimizers
from tests.conformance.optimizers import schedulers
from tests.conformance.result import Tally

SETUPS = 8  # configurations of an optimizer for each sample of a module: they are quick


@dataclass(frozen=True)
class Run:
    """One pass over the cases of a class."""

    entries: Callable[[], Iterable[str]]
    check: Callable[[str, Bridge, Limits], list[Tally]]
    tier: str


def check_modules(name: str, bridge: Bridge, limits: Limits) -> list[Tally]:
    """M9 on module_db's samples in float32, and what the class refuses."""
    values = Tally("M9", name, modules.TIER, "float32")
    types = Tally("M9e", name, modules.TIER, "float32")
    texts = Tally("M9t", name, modules.TIER, "float32")
    tallies = [values, types, texts]
    if _is_missing(tallies, bridge.module.nn, name):
        return tallies
    module_check.check_cases(values, modules.cases(name, limit=limits.classes), bridge)
    module_errors.check_errors(types, texts, name, bridge)
    return [values, *(tally for tally in (types, texts) if tally.samples)]


def check_variants(name: str, bridge: Bridge, limits: Limits) -> list[Tally]:
    """The same cases with inputs laid out with gaps, and in float64."""
    spread = Tally("M9n", name, modules.TIER, "float32")
    wide = Tally("M9d", name, modules.TIER, "float64")
    if _is_missing([spread, wide], bridge.module.nn, name):
        return [spread, wide]
    limit = limits.classes
    module_check.check_cases(spread, modules.cases(name, limit=limit, spread=True), bridge)
    module_check.check_cases(wide, modules.cases(name, torch.float64, limit=limit), bridge)
    return [spread, wide]


def check_compiled_modules(name: str, bridge: Bridge, limits: Limits) -> list[Tally]:
    """M9c, M9b: the module against itself compiled, by tolerance and (`bitwise`) bit for bit."""
    close = Tally("M9c", name, modules.TIER, "float32")
    bitwise = Tally("M9b", name, modules.TIER, "float32")
    if _is_missing([close, bitwise], bridge.module.nn, name):
        return [close, bitwise]
    for tally, mode in ((close, None), (bitwise, "bitwise")):
        cases = modules.cases(name, limit=limits.classes)
        module_compiled.check_compiled(tally, cases, bridge, mode)
    return [close, bitwise]


def check_own_modules(name: str, bridge: Bridge, limits: Limits) -> list[Tally]:
    """M9o: rows of our own."""
    tally = Tally("M9o", name, modules.TIER, "float32")
    if not _is_missing([tally], bridge.module.nn, name):
        own_modules.check(tally, name, bridge)
    return [tally]


def check_optimizers(name: str, bridge: Bridge, limits: Limits) -> list[Tally]:
    """M10 on optim_db's configurations, and what the class refuses."""
    values = Tally("M10", name, optimizers.TIER, "float32")
    types = Tally("M10e", name, optimizers.TIER, "float32")
    texts = Tally("M10t", name, optimizers.TIER, "float32")
    tallies = [values, types, texts]
    if not _is_missing(tallies, getattr(bridge.module, "optim", None), name):
        setups = catalog.pick(optimizers.setups(name), _setups(limits))
        optimizer_check.check_setups(values, name, setups, bridge)
        optimizer_errors.check_errors(types, texts, name, bridge)
    return tallies


def check_schedulers(name: str, bridge: Bridge, limits: Limits) -> list[Tally]:
    """M10s: rows of our own."""
    tally = Tally("M10s", name, optimizers.TIER, "")
    home = getattr(getattr(bridge.module, "optim", None), "lr_scheduler", None)
    if not _is_missing([tally], home, name):
        schedulers.check_class(tally, name, bridge)
    return [tally]


RUNS = {
    "modules": Run(modules.load, check_modules, modules.TIER),
    "module variants": Run(modules.load, check_variants, modules.TIER),
    "compiled modules": Run(modules.load, check_compiled_modules, modules.TIER),
    "own modules": Run(own_modules.wanted, check_own_modules, modules.TIER),
    "optimizers": Run(optimizers.load, check_optimizers, optimizers.TIER),
    "schedulers": Run(lambda: schedulers.ROWS, check_schedulers, optimizers.TIER),
    "foreach": Run(foreach.load, foreach.check_foreach, foreach.TIER),
}


def _setups(limits: Limits) -> int | None:
    return None if limits.classes is None else SETUPS * limits.classes


def _is_missing(tallies: list[Tally], home: object, name: str) -> bool:
    """Whether the class is not there; then all of its tallies have failed."""
    if hasattr(home, name):
        return False
    for tally in tallies:
        tally.lost("missing", name)
    return True
