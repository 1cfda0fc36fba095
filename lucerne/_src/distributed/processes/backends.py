"""Names of ways to talk: `tcp`, which is ours and answers to `gloo` too; others refuse."""

from __future__ import annotations

from typing import Any, ClassVar


class BackendName(str):
    """The name of a backend, in lower case.

    >>> BackendName("GLOO") == "gloo", BackendName.GLOO
    (True, 'gloo')
    """

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    UCC = "ucc"
    MPI = "mpi"
    XCCL = "xccl"
    TCP = "tcp"
    FAKE = "fake"
    backend_list: ClassVar[list[str]] = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, TCP]
    default_device_backend_map: ClassVar[dict[str, str]] = {
        "cpu": GLOO, "cuda": NCCL, "xpu": XCCL, "mps": GLOO,
    }  # fmt: skip

    def __new__(cls, name: Any) -> BackendName:
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish, got {name!r}")
        return str.__new__(cls, name.lower())

    @classmethod
    def register_backend(
        cls, name: str, func: Any, extended_api: bool = False, devices: Any = None
    ) -> None:
        """Refuses: collectives of other libraries have no door here yet."""
        raise NotImplementedError(
            f"Backend.register_backend({name!r}, {func!r}, {extended_api}, {devices}): Lucerne has "
            "the backend tcp (also named gloo) and takes no others"
        )


OURS = (BackendName.TCP, BackendName.GLOO)


class BackendConfig:
    """Which backend serves which device.

    >>> BackendConfig("cpu:gloo,cuda:nccl").get_device_backend_map()["cpu"]
    'gloo'
    """

    def __init__(self, backend: str = "gloo") -> None:
        self._map: dict[str, BackendName] = {}
        for word in str(backend).split(","):
            device, colon, name = word.strip().partition(":")
            self._map["cpu" if not colon else device] = BackendName(name if colon else device)

    def get_device_backend_map(self) -> dict[str, BackendName]:
        return dict(self._map)

    def __repr__(self) -> str:
        return ",".join(f"{device}:{name}" for device, name in self._map.items())


def choose(backend: str | None) -> str:
    """The name that a group answers to; what is not here says so."""
    if backend is None:
        return BackendName.GLOO
    found = BackendConfig(backend).get_device_backend_map().get("cpu")
    name = str(found or backend).lower()
    if name in OURS:
        return name
    advice = {
        "nccl": "nccl moves tensors of NVIDIA devices, of which there are none here",
        "mpi": "mpi is not built in; `lucerne run` and the variables of mpirun work with tcp",
    }
    raise ValueError(
        f"init_process_group(backend={backend!r}): {advice.get(name, f'there is no {name}')}. Use "
        "backend='gloo' (or 'tcp', which is the same here)"
    )


def is_backend_available(backend: str) -> bool:
    """Whether groups can be made with this backend here."""
    return str(backend).lower() in OURS
