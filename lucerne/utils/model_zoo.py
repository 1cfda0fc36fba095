"""`lucerne.utils.model_zoo`: the old name of `lucerne.hub`'s loader."""

from __future__ import annotations

from lucerne.hub import load_state_dict_from_url as load_url
from lucerne.hub import tqdm as tqdm

__all__ = ["load_url", "tqdm"]
