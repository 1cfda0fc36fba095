"""`lucerne.hub`: models by the `hubconf.py` of a folder, and weights by their address."""

from __future__ import annotations

from lucerne._src.hub import HASH_REGEX as HASH_REGEX
from lucerne._src.hub import _get_torch_home as _get_torch_home
from lucerne._src.hub import download_url_to_file as download_url_to_file
from lucerne._src.hub import get_dir as get_dir
from lucerne._src.hub import help as help
from lucerne._src.hub import list as list
from lucerne._src.hub import load as load
from lucerne._src.hub import load_state_dict_from_url as load_state_dict_from_url
from lucerne._src.hub import set_dir as set_dir
from lucerne._src.hub import tqdm as tqdm
