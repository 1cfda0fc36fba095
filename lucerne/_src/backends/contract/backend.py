"""The contract of a backend: move bytes, and compile a graph of primitives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from lucerne._src.base.device import device
from lucerne._src.base.process.sealed_folder import Cache
from lucerne._src.ir.graph import Graph, Node
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.ir.program import Program

CONTRACT_VERSION = 4
"""Raised when this file changes in a way that a backend would notice."""
OLDEST_CONTRACT = 2
"""Backends for contracts from this one on are taken."""
CHANGES = {
    1: "`allocate`, `to_host`, `from_host`, `address`, `compile(graph)`, `supports(op)`",
    2: "composites may be offered whole (`fuses`, `fuse`); `_array` of a tensor is the backend's",
    3: "`write(buffer, start, data)`, for memory that is not the host's: `to_host` then gives a "
    "copy. Without it, `to_host` must share the buffer's memory, as before. `nonzero` may return "
    "memory of the device (`lucerne.backends.api.Room`). New and optional: `synchronize`",
    4: "`eig_factors(input, vectors)`: eigenvectors only where they are asked for. New, optional: "
    "`mul_add` of a scalar machine (rounds once), `updates` (a product does an optimizer's step)",
}
"""What each version brought."""

Buffer = Any
"""Bytes on a device, as the backend holds them. Host backends use a one-dimensional uint8 array."""


class TensorState(Protocol):
    """What an executable sees of a tensor."""

    _meta: TensorMeta
    _storage: Any
    _offset: int
    _array: Any
    """A slot the backend may use to keep its own handle of this tensor."""


class Executable(Protocol):
    """A compiled graph. Reads `inputs`, writes into `outputs`, which are allocated already.

    Returns None, or for ops with data-dependent shapes the list of result arrays.
    """

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[TensorState]) -> Any: ...


class Backend(Protocol):
    """Two abilities. Everything else the framework derives."""

    contract_version: int

    def devices(self) -> list[device]: ...

    def allocate(self, nbytes: int) -> Buffer:
        """Fresh bytes, aligned to 64, contents undefined."""

    def to_host(self, buffer: Buffer) -> np.ndarray:
        """The bytes as a uint8 array (shared when the device's memory is the host's)."""

    def from_host(self, data: np.ndarray) -> Buffer:
        """A buffer with these bytes."""

    def address(self, buffer: Buffer) -> int:
        """Where the bytes are: what `data_ptr` reports."""

    def compile(self, graph: Graph) -> Executable:
        """An executable for a graph of primitives; eager hands over graphs of one op."""

    def supports(self, op: Op) -> bool:
        """Whether `compile` takes this op."""


class Apart(Protocol):
    """What a backend for a device with memory of its own must have besides."""

    def write(self, buffer: Buffer, start: int, data: np.ndarray) -> None:
        """Replace bytes of a buffer; `data` is a flat array of bytes. (A backend with this method
        may give copies in `to_host`; without it, `to_host` shares the buffer's memory.)"""

    def synchronize(self) -> None:
        """Wait until all that was asked for is done. (Without it: it always is.)"""


class Fusing(Protocol):
    """What a backend may have besides: composites as one kernel.

    A composite is an op written with other ops; without this ability eager runs them one by one. A
    composite with a `meta` of its own arrives as a graph of that one node, any other as the graph
    of the primitives its body calls.
    """

    def fuses(self, op: Op) -> bool:
        """Whether calls of this composite should be offered at all. Must not depend on data."""

    def fuse(self, graph: Graph) -> Executable | None:
        """One executable for the whole graph, or None: its ops then run one by one."""


class Grouping(Protocol):
    """What a backend may have besides: kernels for groups of nodes of a compiled graph."""

    heads: frozenset[str]
    """Ops (by qualified name) that take element-wise ops behind them into their own loops."""
    catchers: frozenset[str]
    """Those among them that rather take the ops which make their first operand."""
    over_operand: Mapping[str, int]
    """Ops that may write their result over an operand (its number) of the same meta. Element-wise
    kernels always may: each element is read before it is written."""

    folds: bool
    """Whether reductions join element-wise ops; without this attribute they do."""

    def updates(self, node: Node, op: str) -> bool:
        """Whether a head can do an optimizer's step (the op's name) for the parameter whose
        gradient it makes (`fuse` decides). Without this method none does."""

    def is_costly(self, node: Node) -> bool:
        """Whether an element-wise op is better not taken along behind a large heavy op."""

    def is_free(self, node: Node) -> bool:
        """Whether heads may do an op while they read its result, at no cost (`fuse` decides)."""

    def does_itself(self, node: Node, readers: Sequence[Node]) -> bool:
        """Whether all readers of an op had better do it (`fuse` decides): what makes its operand
        then writes fewer bytes."""

    def fuses_groups(self, graphs: list[Graph]) -> list[bool]:
        """For which of the groups `fuse` gives one executable."""


class Arranging(Protocol):
    """What a backend may have besides: a wish how images lie in memory."""

    def prefers_channels_last(self, node: Node) -> bool:
        """Whether a convolution had better work on images whose channels lie side by side."""


class Runner(Protocol):
    """A program that is ready to run."""

    def __call__(
        self,
        arguments: Sequence[TensorState],
        numbers: Sequence[float],
        results: Sequence[TensorState],
    ) -> None:
        """Run all steps. Arguments have the metas the program was made for."""


class Launching(Protocol):
    """What a runner may have besides: calls without Python between the tensors and the results."""

    def expect(
        self,
        requires_grad: Sequence[bool | None] | None = None,
        groups: Sequence[int] | None = None,
    ) -> None:
        """What `launch` asks of the arguments besides their metas. `groups`: arguments that may
        share memory though one of them is written have the same number, not 0."""

    def launch(
        self, first: tuple[Any, ...], second: tuple[Any, ...], numbers: tuple[Any, ...] = ()
    ) -> tuple[Any, ...] | None:
        """Fresh tensors with the results, writes counted; None: an argument is not as expected and
        nothing was done. The arguments are both tuples; those of the first stay from call to call.
        """


class Identified(Protocol):
    """What a backend may have besides: a name for all it depends on, so that programs made for it
    can be kept and used by another process."""

    def identity(self) -> bytes | None:
        """A digest of the processor, of versions and of the text of the backend; None: it can't be
        told, and nothing is kept."""

    def kept(self) -> Cache:
        """Where its kernels are kept."""


class Reporting(Protocol):
    """What a backend may have besides: an account of the kernels it made."""

    @property
    def kernels(self) -> Sequence[tuple[Any, float, bool]]:
        """All kernels of this process: key, seconds it took, whether its code was on disk."""


class Measuring(Protocol):
    """What a backend may have besides: what its device can do at best."""

    def limits(self, *, anew: bool = False) -> Mapping[str, Any]:
        """Measured figures, as `lucerne.profiler.limits.Limits` names them; kept ones if there are
        any and `anew` is not asked for."""


class Telling(Protocol):
    """What a backend may have besides: the code of its kernels as text."""

    def kernel_text(self, graph: Graph) -> Mapping[str, str]:
        """What runs a step of a program, by the ending of a file that would hold it."""


class Assembling(Protocol):
    """What a backend may have besides: whole programs in one call.

    Without it the steps run one by one, each compiled by `fuse` or `compile`.
    """

    def assemble(self, program: Program) -> Runner: ...


class Choosing(Protocol):
    """What a backend may have besides: a say in the layout of images in compiled programs."""

    def prefers_channels_last(self, node: Node) -> bool:
        """Whether a convolution (its gradients count as well) had better read and write images
        with their channels side by side; without this method it never does."""


class Counting(Protocol):
    """What a backend that passes some graphs on to another one should have, so that it shows."""

    fallbacks: dict[str, int]
    """How many graphs of each op (by qualified name) were passed on."""
