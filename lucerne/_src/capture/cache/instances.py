"""Versions for sizes that were never traced: of a program for all sizes, or compiled for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src import backends
from lucerne._src.backends.contract.backend import OneSizeError, Runner, SizedProgram
from lucerne._src.backends.contract.step_runner import StepError
from lucerne._src.base.config import config
from lucerne._src.capture import faults, ledger
from lucerne._src.capture.aot.second_derivatives import Again
from lucerne._src.capture.aot.split import constants_of
from lucerne._src.capture.cache.build import (
    Building,
    backend_of,
    compiled_half,
    devices_of,
    noted,
    part,
    watch,
)
from lucerne._src.capture.cache.entry import CacheEntry, Guards
from lucerne._src.capture.options import Options
from lucerne._src.capture.road import road_of
from lucerne._src.capture.symbolic.families import Families, Family
from lucerne._src.capture.symbolic.shapes import Sized
from lucerne._src.capture.symbolic.sized_version import SizedBackward, SizedVersion, symbols_at
from lucerne._src.capture.trace.captured import Captured
from lucerne._src.capture.trace.fake import CaptureError
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.meta import Flips
from lucerne._src.ir.symbolic.numbers import NoKeyError, guarding
from lucerne._src.loops.stages import Stages
from lucerne._src.transforms.absent import sums_of
from lucerne._src.transforms.functionalize import MutationError

_MOST_VERSIONS = 16
"""How many versions for all sizes are made of one capture: each holds for a range of sizes."""


def resized(compiled: Any, leaves: list[Any], shape: Any) -> CacheEntry | None:
    """A version of a program for all sizes that is there, at sizes that were not traced."""
    return _noted(compiled, leaves, _of_version(compiled, compiled.families, leaves, shape))


def instance(compiled: Any, leaves: list[Any], shape: Any) -> CacheEntry | None:
    """A version for sizes that were not traced, if there is a capture for all sizes."""
    return _noted(compiled, leaves, _made(compiled, leaves, shape))


def _noted(compiled: Any, leaves: list[Any], entry: CacheEntry | None) -> CacheEntry | None:
    if entry is not None:
        compiled.versions.add_instance(leaves, entry)
        watch(compiled, entry)
    return entry


def _made(compiled: Any, leaves: list[Any], shape: Any) -> CacheEntry | None:
    before = faults.Before()
    try:
        for family, learned, sizes in compiled.families.fitting(leaves, shape):
            call = _Call(compiled, family, learned, sizes, leaves, shape)
            entry = call.of_all_sizes() or call.of_these()
            if entry is not None:
                return entry
    except Exception:
        before.put_back()
        raise
    return None


def _of_version(
    compiled: Any, families: Families, leaves: list[Any], shape: Any, is_part: bool = False
) -> CacheEntry | None:
    """By evaluating the numbers of a version that is there: nothing is run that could leave the
    process changed."""
    if not _may_be_sized(compiled.options, leaves):
        return None
    found = families.fitting_version(leaves, shape)
    if found is None:
        return None
    family, learned, sizes, version = found
    return _Call(compiled, family, learned, sizes, leaves, shape, is_part).at(version)


def of_part(compiled: Any, families: Families, leaves: list[Any], shape: Any) -> CacheEntry | None:
    """The same for a part of a function."""
    known = _of_version(compiled, families, leaves, shape, is_part=True)
    if known is not None:
        return known
    for family, learned, sizes in families.fitting(leaves, shape):
        call = _Call(compiled, family, learned, sizes, leaves, shape, is_part=True)
        entry = call.of_all_sizes()
        captured = learned.at(leaves) if entry is None else None
        if captured is not None:
            entry = part(compiled, captured, call.guards(captured), Stages(), ledger.SIZES, _PART)
        if entry is not None:
            return entry
    return None


_PART = "a part of it"


def keep(compiled: Any, entry: CacheEntry, leaves: list[Any], shape: Any) -> None:
    """Write a version to disk whose sizes have come often."""
    entry.keep_now()
    asked = compiled.ask(leaves, shape)
    if asked.entry is None:
        asked.keep(entry, compiled.files)


class _Call:
    """A call with sizes that a capture for all sizes holds for."""

    def __init__(
        self,
        compiled: Any,
        family: Family,
        learned: Sized,
        sizes: dict[str, int],
        leaves: list[Any],
        shape: Any,
        is_part: bool = False,
    ) -> None:
        self.compiled, self.family, self.learned, self.sizes = compiled, family, learned, sizes
        self.leaves, self.shape, self.is_part = leaves, shape, is_part

    @property
    def why(self) -> str:
        return _PART if self.is_part else self.compiled.why(self.leaves, self.shape)

    def guards(self, captured: Captured) -> Guards:
        return Guards(self.leaves, self.shape, captured, self.family.guards.reach)

    # ---- by a program for all sizes ------------------------------------------------------------

    def of_all_sizes(self) -> CacheEntry | None:
        """By a program that was made for all sizes, or is made now; None: there is none."""
        learned, options = self.learned, self.compiled.options
        if learned.one_size or not _may_be_sized(options, self.leaves):
            return None
        for version in learned.versions:
            if version.holds(self.sizes):
                return self.at(version)
        if len(learned.versions) >= _MOST_VERSIONS:
            return None
        return self._compiled()

    def _compiled(self) -> CacheEntry | None:
        compiled, learned = self.compiled, self.learned
        with ledger.compiling(compiled.fn, ledger.SIZES, self.why) as row:
            try:
                version = sized_version(learned, self.sizes, compiled.options)
            except (OneSizeError, NoKeyError, StepError, MutationError, CaptureError) as error:
                learned.one_size = str(error)
            except Exception as error:  # an error of ours costs the generality
                learned.one_size = faults.in_words(error)
                compiled.options.tell(error, faults.NO_SIZES)
            if learned.one_size:
                row.one_size = learned.one_size
                return None
            learned.versions.insert(0, version)
            entry = self.at(version)
            if entry is not None:
                noted(row, compiled, entry)
        return entry

    def at(self, version: SizedVersion) -> CacheEntry | None:
        first = version.first

        def guards(captured: Callable[[], Captured]) -> Guards:
            known = None if first is None else first.guards.resized(self.leaves)
            return self.guards(captured()) if known is None else known

        try:
            entry = version.at(self.sizes, guards)
        except OneSizeError:  # a kernel has no plan for them
            return None
        if version.captured.gradients and not self.learned.fits(entry.captured, self.leaves):
            return None
        if not self.is_part:  # (a part is not called again for its gradients)
            if first is None:
                entry.again = Again(self.compiled, entry)
            entry.keep_later(len(version.captured.graph.nodes))
        ledger.ENTRIES[entry] = self.compiled.fn, self.compiled.options
        return entry

    # ---- by a program for these sizes ----------------------------------------------------------

    def of_these(self) -> CacheEntry | None:
        """By a program that is compiled for these sizes, or lies on disk."""
        compiled = self.compiled
        captured = self.learned.at(self.leaves)
        if captured is None:
            return None
        guards = self.guards(captured)
        try:
            with ledger.compiling(compiled.fn, ledger.SIZES, self.why) as row:
                row.one_size = self.learned.one_size
                asked = compiled.ask(self.leaves, self.shape)
                entry = asked.entry or Building(captured, guards, compiled.options).entry()
                if asked.entry is None:
                    asked.keep(entry, compiled.files)
                noted(row, compiled, entry)
                entry.again = Again(compiled, entry)
        except (StepError, MutationError, CaptureError):
            return None  # tracing says what is wrong, or what must be taken apart
        made: CacheEntry = entry
        return made


def _may_be_sized(options: Options, leaves: Sequence[Any]) -> bool:
    """Whether nobody wants to see a program of these very sizes."""
    seen = options.maker is not None or options.shadow > 0 or options.dump or config.dump
    flipped = Flips.met and any(getattr(x, "_meta", None) and x._meta.flipped for x in leaves)
    return not (seen or flipped)


def sized_version(learned: Sized, sizes: dict[str, int], options: Options) -> SizedVersion:
    """A version for all sizes for which what is decided on the road comes out as for these."""
    names = list(sizes)
    with guarding(keys=False) as decisions:
        captured = learned.at_sizes(symbols_at(sizes))
        building = _SizedBuilding(captured, options, names)
        forward, backward = building.programs()
        return SizedVersion(names, decisions, building, forward, backward)


class _SizedBuilding(Building):
    """From a capture with symbols to programs with symbols."""

    guards: Any

    def __init__(self, captured: Captured, options: Options, names: list[str]) -> None:
        super().__init__(captured, None, options)  # type: ignore[arg-type]
        self.names = names

    def programs(self) -> tuple[SizedProgram, SizedBackward | None]:
        if not self.captured.gradients:
            return self._sized(self.graph, constants_of(self.sources), self.stages), None
        halves, tangents = self.halves()
        forward = self._sized(halves.forward, halves.constants, self.stages)
        stages, constants = Stages(), halves.saved_constants
        made = self._sized(halves.backward, constants, stages)
        results = [v.meta for v in halves.backward.outputs]
        joint = self.joint(halves, tangents, Nothing(), results, stages)
        joint.tell = self.options.tell
        return forward, SizedBackward(
            made, joint, halves.backward, sums_of(halves.backward), constants, self._lean
        )

    def _sized(self, graph: Graph, constants: dict[int, Any], stages: Stages) -> SizedProgram:
        name = backend_of(graph, self.options)
        if name != backends.HOST and backends.HOST in devices_of(graph.inputs):
            raise OneSizeError("its tensors are on several devices")
        road = road_of(self.options, stages, backend=name)
        made = road.sized(graph, constants, self.names)
        if made is None:
            raise OneSizeError(f"the backend {name} makes programs of known sizes only")
        return made

    def _lean(self, graph: Graph, constants: dict[int, Any], stages: Stages) -> tuple[Any, Any]:
        return compiled_half(self.options, graph, constants, stages)


class Nothing(Runner):
    """Stands where a runner does that is made for each size."""

    def __call__(self, *arguments: Any) -> None:
        raise AssertionError("a program for all sizes runs at none")
