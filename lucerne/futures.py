"""`lucerne.futures`: results that are to come."""

from __future__ import annotations

from lucerne._src.futures import Future as Future
from lucerne._src.futures import collect_all as collect_all
from lucerne._src.futures import wait_all as wait_all

__all__ = ["Future", "collect_all", "wait_all"]
