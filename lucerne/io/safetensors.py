"""`lucerne.io.safetensors`: a JSON header, then the bytes of tensors."""

from __future__ import annotations

from lucerne._src.io.safetensors import BLANK as BLANK
from lucerne._src.io.safetensors import CODES as CODES
from lucerne._src.io.safetensors import DIGEST as DIGEST
from lucerne._src.io.safetensors import DIGEST_TEXT as DIGEST_TEXT
from lucerne._src.io.safetensors import DTYPES as DTYPES
from lucerne._src.io.safetensors import MAX_HEADER as MAX_HEADER
from lucerne._src.io.safetensors import Array as Array
from lucerne._src.io.safetensors import Entry as Entry
from lucerne._src.io.safetensors import load as load
from lucerne._src.io.safetensors import load_file as load_file
from lucerne._src.io.safetensors import load_model as load_model
from lucerne._src.io.safetensors import metadata_of as metadata_of
from lucerne._src.io.safetensors import save as save
from lucerne._src.io.safetensors import save_file as save_file
from lucerne._src.io.safetensors import save_model as save_model
from lucerne._src.io.safetensors import shared_tensors as shared_tensors
