"""`lucerne.serialization`: saving and loading, and the settings of both."""

from __future__ import annotations

from lucerne._src.io.files import unsafe_globals as get_unsafe_globals_in_checkpoint  # noqa: F401
from lucerne._src.serialization import CorruptFileError as CorruptFileError
from lucerne._src.serialization import LoadEndianness as LoadEndianness
from lucerne._src.serialization import LoadError as LoadError
from lucerne._src.serialization import SaveError as SaveError
from lucerne._src.serialization import SourceChangeWarning as SourceChangeWarning
from lucerne._src.serialization import StorageType as StorageType
from lucerne._src.serialization import UnsafeFileError as UnsafeFileError
from lucerne._src.serialization import UnsupportedFileError as UnsupportedFileError
from lucerne._src.serialization import add_safe_globals as add_safe_globals
from lucerne._src.serialization import (
    check_module_version_greater_or_equal as check_module_version_greater_or_equal,
)
from lucerne._src.serialization import clear_safe_globals as clear_safe_globals
from lucerne._src.serialization import default_restore_location as default_restore_location
from lucerne._src.serialization import get_crc32_options as get_crc32_options
from lucerne._src.serialization import get_default_load_endianness as get_default_load_endianness
from lucerne._src.serialization import get_default_mmap_options as get_default_mmap_options
from lucerne._src.serialization import get_safe_globals as get_safe_globals
from lucerne._src.serialization import load as load
from lucerne._src.serialization import location_tag as location_tag
from lucerne._src.serialization import mkdtemp as mkdtemp
from lucerne._src.serialization import normalize_storage_type as normalize_storage_type
from lucerne._src.serialization import register_package as register_package
from lucerne._src.serialization import safe_globals as safe_globals
from lucerne._src.serialization import save as save
from lucerne._src.serialization import set_crc32_options as set_crc32_options
from lucerne._src.serialization import set_default_load_endianness as set_default_load_endianness
from lucerne._src.serialization import set_default_mmap_options as set_default_mmap_options
from lucerne._src.serialization import skip_data as skip_data
from lucerne._src.serialization import storage_to_tensor_type as storage_to_tensor_type
from lucerne._src.serialization import validate_cuda_device as validate_cuda_device
from lucerne._src.serialization import validate_hpu_device as validate_hpu_device
