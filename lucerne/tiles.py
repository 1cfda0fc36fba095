"""`lucerne.tiles`: kernels written in Python over blocks of tensors, compiled by the CPU engine."""

from __future__ import annotations

from lucerne._src.tiles.index import TileError as TileError
from lucerne._src.tiles.kernel import In as In
from lucerne._src.tiles.kernel import Kernel as Kernel
from lucerne._src.tiles.kernel import Out as Out
from lucerne._src.tiles.kernel import empty as empty
from lucerne._src.tiles.kernel import kernel as kernel
from lucerne._src.tiles.kernel import like as like
from lucerne._src.tiles.language import ELEMENTWISE as _ELEMENTWISE
from lucerne._src.tiles.language import Block as Block
from lucerne._src.tiles.language import abs as abs
from lucerne._src.tiles.language import arange as arange
from lucerne._src.tiles.language import argmax as argmax
from lucerne._src.tiles.language import cummax as cummax
from lucerne._src.tiles.language import cumprod as cumprod
from lucerne._src.tiles.language import cumsum as cumsum
from lucerne._src.tiles.language import dot as dot
from lucerne._src.tiles.language import floor as floor
from lucerne._src.tiles.language import full as full
from lucerne._src.tiles.language import isnan as isnan
from lucerne._src.tiles.language import keep as keep
from lucerne._src.tiles.language import load as load
from lucerne._src.tiles.language import max as max
from lucerne._src.tiles.language import maximum as maximum
from lucerne._src.tiles.language import mean as mean
from lucerne._src.tiles.language import min as min
from lucerne._src.tiles.language import minimum as minimum
from lucerne._src.tiles.language import prod as prod
from lucerne._src.tiles.language import program_id as program_id
from lucerne._src.tiles.language import range as range
from lucerne._src.tiles.language import store as store
from lucerne._src.tiles.language import sum as sum
from lucerne._src.tiles.language import variable as variable
from lucerne._src.tiles.language import where as where
from lucerne._src.tiles.language import zeros as zeros
from lucerne._src.tiles.tuning import Tuned as Tuned
from lucerne._src.tiles.tuning import autotune as autotune

globals().update(_ELEMENTWISE)
