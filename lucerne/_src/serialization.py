"""`torch.serialization`: saving and loading, and the settings of both."""

from __future__ import annotations

import tempfile
from typing import Any

from lucerne._src.base.device import device as Device
from lucerne._src.io.errors import CorruptFileError as CorruptFileError
from lucerne._src.io.errors import LoadError as LoadError
from lucerne._src.io.errors import SaveError as SaveError
from lucerne._src.io.errors import UnsafeFileError as UnsafeFileError
from lucerne._src.io.errors import UnsupportedFileError as UnsupportedFileError
from lucerne._src.io.files import load as load
from lucerne._src.io.files import save as save
from lucerne._src.io.options import LoadEndianness as LoadEndianness
from lucerne._src.io.options import add_safe_globals as add_safe_globals
from lucerne._src.io.options import clear_safe_globals as clear_safe_globals
from lucerne._src.io.options import get_default_load_endianness as get_default_load_endianness
from lucerne._src.io.options import get_default_mmap_options as get_default_mmap_options
from lucerne._src.io.options import get_safe_globals as get_safe_globals
from lucerne._src.io.options import safe_globals as safe_globals
from lucerne._src.io.options import set_default_load_endianness as set_default_load_endianness
from lucerne._src.io.options import set_default_mmap_options as set_default_mmap_options
from lucerne._src.io.storages import STORAGE_DTYPES, default_place
from lucerne._src.tensor.interop.typed_names import TENSOR_TYPES, TypedStorage
from lucerne._src.tensor.interop.untyped import UntypedStorage

mkdtemp = tempfile.mkdtemp


class SourceChangeWarning(Warning):
    """torch warns with it about changed source code of pickled modules; we load no modules."""


class StorageType:
    """A storage class by name.

    >>> import lucerne as torch
    >>> torch.serialization.StorageType("FloatStorage").dtype
    torch.float32
    """

    def __init__(self, name: str) -> None:
        if STORAGE_DTYPES.get(name) is None:
            raise AttributeError(f"no storage class {name!r}")
        self.name = name
        self.dtype = STORAGE_DTYPES[name]

    def __str__(self) -> str:
        return f"StorageType(dtype={self.dtype})"


def get_crc32_options() -> bool:
    """Always true: a checkpoint without checksums hides damage."""
    return True


def set_crc32_options(compute_crc32: bool) -> None:
    """Checksums can't be turned off; asking for them is fine."""
    if not compute_crc32:
        raise ValueError(
            "set_crc32_options: checkpoints always carry checksums here, so that damage is "
            "noticed; load(f, checksums=False) skips comparing them"
        )


def location_tag(storage: Any) -> str:
    """Where a storage lives, as a checkpoint names it."""
    held = storage.untyped() if isinstance(storage, TypedStorage) else storage
    if not isinstance(held, UntypedStorage):
        raise RuntimeError(f"don't know how to determine data location of {type(storage).__name__}")
    return str(held.device)


def default_restore_location(storage: Any, location: str) -> Any:
    """Move a storage to where it was saved."""
    held = storage.untyped() if isinstance(storage, TypedStorage) else storage
    return default_place(held, location)


def normalize_storage_type(storage_type: Any) -> Any:
    """The storage class itself: there is one per dtype, whatever the device."""
    return storage_type


def storage_to_tensor_type(storage: Any) -> Any:
    """The legacy tensor class of a typed storage."""
    return TENSOR_TYPES[storage.pickle_storage_type().replace("Storage", "Tensor")]


def validate_cuda_device(location: Any) -> int:
    """There is no CUDA backend yet."""
    raise RuntimeError(
        "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. "
        "If you are running on a CPU-only machine, please use torch.load with "
        "map_location=torch.device('cpu') to map your storages to the CPU."
    )


def validate_hpu_device(location: Any) -> int:
    """There is no HPU backend."""
    raise RuntimeError(
        f"Attempting to deserialize object on {Device('hpu')}, which no backend serves; load with "
        "map_location='cpu'"
    )


def register_package(priority: int, tagger: Any, deserializer: Any) -> None:
    """Refused: backends serve devices (docs/extend/backend.md) and move their own bytes."""
    raise NotImplementedError(
        "register_package: a device is a backend here, see docs/extend/backend.md; to place "
        "storages in your own way pass a function as map_location"
    )


class skip_data:
    """Refused: a checkpoint without its bytes can't have checksums."""

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        raise NotImplementedError(
            "skip_data: a checkpoint without its bytes could not be verified; save tensors on the "
            "meta device, or load with map_location='meta'"
        )


def check_module_version_greater_or_equal(
    module: Any, req_version_tuple: tuple[Any, ...], error_if_malformed: bool = True
) -> bool:
    """Whether `module.__version__` is at least the given one, part by part."""
    try:
        parts = module.__version__.split(".")
        found = tuple(
            type(want)(part) for want, part in zip(req_version_tuple, parts, strict=False)
        )
    except (AttributeError, ValueError) as error:
        message = f"'{module.__name__}' has a version that can't be read ({error})"
        if error_if_malformed:
            raise RuntimeError(message) from None
        return True
    return found >= req_version_tuple
