"""The contract of a backend: move bytes, and compile a graph of primitives.

`Backend` is a class: what every backend must have is abstract, every other ability is a method with
a default, and the framework never asks whether one is there. Backends for contracts 2 to 4, which
were plain objects, are taken by `adapter.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from lucerne._src.backends.contract.placement import MeshLayout
from lucerne._src.backends.contract.planned import Planner
from lucerne._src.base.device import device
from lucerne._src.base.dtype import dtype as DType
from lucerne._src.base.process.sealed_folder import Cache
from lucerne._src.ir.graph import Graph, Node
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.ir.program import Program

CONTRACT_VERSION = 9
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
    5: "a backend derives from `Backend`; `own_memory = True` says that its memory is not the "
    "host's. Other names: `heads` is `anchors`, `catchers` is `prologue_anchors`, `is_free` is "
    "`folds_into_loads`, `does_itself` is `recomputed_in_readers`. A runner derives from `Runner`",
    6: "new and optional: `take(graph, constants)` (a whole graph as one program, before fusion), "
    "`takes(dtype)`, `about`",
    7: "new and optional: `mesh_size`, `lay_out`, `layout_of`, `part` (tensors over a mesh)",
    8: "new and optional: `plan` (programs for devices that are not here)",
    9: "new and optional: `mesh_here`, `talk`, `lay_parts` (a mesh that several processes drive)",
}
"""What each version brought."""

Exchange = Callable[[Any], list[Any]]
"""What each of several processes says (plain data), to each: all of them call it at one time."""
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


class Runner(ABC):
    """A program that is ready to run."""

    @abstractmethod
    def __call__(
        self,
        arguments: Sequence[TensorState],
        numbers: Sequence[float],
        results: Sequence[TensorState],
    ) -> None:
        """Run all steps. Arguments have the metas the program was made for."""

    launch: Any = None
    """`launch(first, second, numbers)`: fresh tensors with the results, writes counted, and no
    Python between; it gives None if an argument is not as expected (nothing was done then). The
    arguments are both tuples; those of the first stay from call to call. Without it a compiled
    function asks the same in Python (`capture.cache.launch`)."""

    def expect(  # noqa: B027 (a default, not a hole)
        self,
        requires_grad: Sequence[bool | None] | None = None,
        groups: Sequence[int] | None = None,
        kinds: Sequence[type | None] | None = None,
    ) -> None:
        """What `launch` asks of the arguments besides their metas. `groups`: arguments that may
        share memory though one of them is written have the same number, not 0. `kinds`: their
        classes."""

    def begin_checks(self, check: Runner, number: TensorState, results: Sequence[int]) -> bool:
        """From now on `launch` runs `check`, a program that writes to `number` and reads these of
        the results, after each run; `alarms` counts when the number was not 0. False: it does not.
        Several may ask for the same at once; each says `end_checks` when it is enough."""
        return False

    def end_checks(self) -> None:  # noqa: B027
        """Of one who was told True."""

    alarms: int = 0
    """Only ever more; more than there is reason for where several threads call it."""

    scratch_bytes: int = 0
    """Memory that it takes while it runs, besides arguments and results."""

    is_told: bool = False
    """Whether it expects what the runner of the same program for other sizes was told."""


class SizedProgram(ABC):
    """A program for all sizes for which its guards hold."""

    written: frozenset[int]
    """Which arguments the steps write to."""

    @abstractmethod
    def program_at(self, sizes: Sequence[int]) -> Program:
        """The program for these sizes: for people, and for the disk."""

    @abstractmethod
    def at(self, sizes: Sequence[int]) -> tuple[Runner, list[TensorMeta]]:
        """What runs it for arguments of these sizes (in the order of their names), and the metas
        of its results. It is told by `expect` what to ask of them."""


class OneSizeError(Exception):
    """A program can't be made for all sizes; the text says why."""


class Backend(ABC):
    """A device. What is abstract must be there; every other ability has a default."""

    contract_version: int
    """The number of the contract that the backend was written for: a number, not
    CONTRACT_VERSION, which would always agree."""

    # ---- what every backend has ----------------------------------------------------------------

    @abstractmethod
    def devices(self) -> list[device]: ...

    @abstractmethod
    def allocate(self, nbytes: int) -> Buffer:
        """Fresh bytes, aligned to 64, contents undefined."""

    @abstractmethod
    def to_host(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        """The bytes as a uint8 array (shared when the device's memory is the host's)."""

    @abstractmethod
    def from_host(self, data: np.ndarray[Any, Any]) -> Buffer:
        """A buffer with these bytes."""

    @abstractmethod
    def address(self, buffer: Buffer) -> int:
        """Where the bytes are: what `data_ptr` reports."""

    @abstractmethod
    def compile(self, graph: Graph) -> Executable:
        """An executable for a graph of primitives; eager hands over graphs of one op."""

    @abstractmethod
    def supports(self, op: Op) -> bool:
        """Whether `compile` takes this op."""

    # ---- what it can hold ----------------------------------------------------------------------

    def takes(self, dtype: DType) -> bool:
        """Whether the device computes with this dtype."""
        return True

    def about(self) -> Mapping[str, Any]:
        """What `lucerne devices` prints of it: "platform", "engine", "memory" (bytes), as far as
        they are known."""
        return {}

    # ---- memory --------------------------------------------------------------------------------

    own_memory: bool = False
    """Whether the memory is the device's own: `to_host` then gives copies, and `write` is needed.
    Else `to_host` shares the buffer's memory."""

    def write(self, buffer: Buffer, start: int, data: np.ndarray[Any, Any]) -> None:
        """Replace bytes of a buffer; `data` is a flat array of bytes."""
        self.to_host(buffer)[start : start + data.nbytes] = data

    def synchronize(self) -> None:  # noqa: B027
        """Wait until all that was asked for is done. Without this method it always is."""

    memory: Any = None
    """Statistics of the memory (`stats`, `reset_peak`, `empty_cache`, `allocated_now`); None: it is
    left to the system."""

    # ---- tensors over a mesh -------------------------------------------------------------------
    #
    # One device to the layers above may be many: its engine lays a tensor out over them, and
    # partitions what is computed with it. Every op then means what it means without a mesh. The
    # ops `placed` and `placed_like` ask for a layout where a value is made.

    def mesh_size(self) -> int:
        """How many devices there are to lay tensors out over; 0: it can't."""
        return 0

    def mesh_here(self) -> tuple[int, ...]:
        """The numbers of the devices that this process drives: all, unless several processes
        (`lucerne run`) drive one mesh together, each with the same program."""
        return tuple(range(self.mesh_size()))

    def talk(self, exchange: Exchange) -> None:
        """How the processes of a mesh tell each other what is theirs alone."""
        raise NotImplementedError(f"{type(self).__name__} has no meshes of several processes")

    def lay_parts(self, t: TensorState, layout: MeshLayout, parts: Sequence[TensorState]) -> None:
        """Memory for a tensor on a mesh of several processes, of the parts on this one's devices
        (in the order of `mesh_here`): each is of the size that `t` is cut into."""
        raise NotImplementedError(f"{type(self).__name__} has no meshes of several processes")

    def lay_out(
        self, t: TensorState, layout: MeshLayout | None, terms: TensorState | None = None
    ) -> None:
        """Lay the memory of a tensor that fills it out over a mesh; None: on no mesh. `terms`:
        where placements are `Partial`, what each device has of it, stacked along leading
        dimensions (one for each such placement, in their order)."""
        raise NotImplementedError(f"{type(self).__name__} has no meshes")

    def layout_of(self, t: TensorState) -> MeshLayout | None:
        """How a tensor lies; None: on no mesh."""
        return None

    def part(self, t: TensorState, k: int) -> tuple[Buffer, TensorMeta]:
        """What the k-th device of the mesh has of a tensor, as memory on no mesh."""
        raise NotImplementedError(f"{type(self).__name__} has no meshes")

    def plan(self, chip: str, calls: int = 0) -> Planner:
        """Planning for a device that is not here, by its name: within it nothing is allocated or
        computed, and the programs of compiled functions are compiled. It must begin before the
        backend is used. `calls`: `PlanComplete` is raised when a program was called so many times;
        0: never."""
        raise NotImplementedError(
            f"{type(self).__name__} can't compile for devices that are not here"
        )

    # ---- composites as one kernel --------------------------------------------------------------
    #
    # A composite is an op written with other ops; a backend without this ability runs them one by
    # one. A composite with a `meta` of its own arrives as a graph of that one node, any other as
    # the graph of the primitives its body calls.

    def fuses(self, op: Op) -> bool:
        """Whether calls of this composite should be offered at all. Must not depend on data."""
        return False

    def fuse(self, graph: Graph) -> Executable | None:
        """One executable for the whole graph, or None: its ops then run one by one."""
        return None

    # ---- kernels for groups of nodes of a compiled graph ---------------------------------------

    anchors: frozenset[str] = frozenset()
    """Ops (by qualified name) that take element-wise ops behind them into their own loops."""
    prologue_anchors: frozenset[str] = frozenset()
    """Those among them that rather take the ops which make their first operand."""
    over_operand: Mapping[str, int] = {}
    """Ops that may write their result over an operand (its number) of the same meta. Element-wise
    kernels always may: each element is read before it is written."""
    folds: bool = True
    """Whether reductions join element-wise ops."""

    def fuses_groups(self, graphs: list[Graph]) -> list[bool]:
        """For which of the groups `fuse` gives one executable. Without this method no groups are
        looked for."""
        return [False] * len(graphs)

    def updates(self, node: Node, op: str) -> bool:
        """Whether an anchor can do an optimizer's step (the op's name) for the parameter whose
        gradient it makes (`fuse` decides)."""
        return False

    def is_costly(self, node: Node) -> bool:
        """Whether an element-wise op is better not taken along behind a large heavy op."""
        return False

    def folds_into_loads(self, node: Node) -> bool:
        """Whether anchors may do an op while they read its result, at no cost (`fuse` decides)."""
        return False

    def recomputed_in_readers(self, node: Node, readers: Sequence[Node]) -> bool:
        """Whether all readers of an op had better do it (`fuse` decides): what makes its operand
        then writes fewer bytes."""
        return False

    def prefers_channels_last(self, node: Node) -> bool:
        """Whether a convolution (its gradients count as well) had better read and write images
        with their channels side by side."""
        return False

    # ---- whole programs, kept and shown --------------------------------------------------------

    def take(self, graph: Graph, constants: Mapping[int, Any]) -> Runner | None:
        """A graph without mutation, which all passes are done with, as one program: for an engine
        that fuses and plans memory by itself. Graphs inside of control-flow nodes are among the
        arguments of those. `constants`: tensors for inputs (by number) whose bytes never change;
        they are no arguments of the runner. None: the graph goes on to fusion."""
        return None

    def assemble(self, program: Program) -> Runner | None:
        """The whole program in one call; None: its steps run one by one, each compiled by `fuse`
        or `compile`."""
        return None

    def sized(self, program: Program, names: Sequence[str]) -> SizedProgram | None:
        """A program whose numbers follow from sizes of its arguments (see `ir.symbolic`), which
        have these names; None: programs are made for known sizes only. Raises `OneSizeError` if
        this one can't be made for all of them."""
        return None

    def identity(self) -> bytes | None:
        """A digest of the processor, of versions and of the text of the backend, so that programs
        made for it can be kept and used by another process; None: nothing is kept."""
        return None

    def kept(self) -> Cache | None:
        """Where its kernels are kept; None: nowhere."""
        return None

    @property
    def kernels(self) -> Sequence[tuple[Any, float, bool]]:
        """All kernels of this process: key, seconds it took, whether its code was on disk."""
        return ()

    def kernel_text(self, graph: Graph) -> Mapping[str, str]:
        """What runs a step of a program, by the ending of a file that would hold it."""
        return {}

    fallbacks: Mapping[str, int] = {}
    """How many graphs of each op (by qualified name) were passed on to another backend."""

    # ---- the machine ---------------------------------------------------------------------------

    def limits(self, *, anew: bool = False) -> Mapping[str, Any]:
        """Measured figures, as `lucerne.profiler.limits.Limits` names them; kept ones if there are
        any and `anew` is not asked for. Empty: the framework measures from outside."""
        return {}

    def threads(self) -> int | None:
        """How many threads kernels use; None: the backend does not say."""
        return None

    def set_threads(self, n: int) -> None:  # noqa: B027
        """Use so many threads. Without this method the backend has no say in it."""

    def set_flush_denormal(self, on: bool) -> bool:
        """Take denormal numbers for zero; False: the backend can't."""
        return False

    def fast_path(self) -> Any:
        """What runs in front of the Python path of eager calls; None: nothing does."""
        return None

    # ---- what it can do ------------------------------------------------------------------------

    OPTIONAL: ClassVar[tuple[str, ...]]

    @property
    def abilities(self) -> tuple[str, ...]:
        """The optional abilities that this backend has an answer of its own for."""
        return tuple(name for name in self.OPTIONAL if _differs(self, name))


def _differs(backend: Backend, name: str) -> bool:
    if name in vars(backend):
        return True
    return getattr(type(backend), name) is not getattr(Backend, name)


Backend.OPTIONAL = tuple(
    name
    for name in vars(Backend)
    if not name.startswith("_")
    and name not in ("OPTIONAL", "abilities")
    and name not in Backend.__abstractmethods__
)
