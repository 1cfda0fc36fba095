"""`lucerne.tiles`: kernels written in Python over blocks of tensors, compiled by the CPU engine."""

from __future__ import annotations

from lucerne._src.tiles import Block as Block
from lucerne._src.tiles import In as In
from lucerne._src.tiles import Kernel as Kernel
from lucerne._src.tiles import Out as Out
from lucerne._src.tiles import TileError as TileError
from lucerne._src.tiles import Tuned as Tuned
from lucerne._src.tiles import abs as abs
from lucerne._src.tiles import arange as arange
from lucerne._src.tiles import argmax as argmax
from lucerne._src.tiles import autotune as autotune
from lucerne._src.tiles import cummax as cummax
from lucerne._src.tiles import cumprod as cumprod
from lucerne._src.tiles import cumsum as cumsum
from lucerne._src.tiles import dot as dot
from lucerne._src.tiles import empty as empty
from lucerne._src.tiles import floor as floor
from lucerne._src.tiles import full as full
from lucerne._src.tiles import isnan as isnan
from lucerne._src.tiles import keep as keep
from lucerne._src.tiles import kernel as kernel
from lucerne._src.tiles import like as like
from lucerne._src.tiles import load as load
from lucerne._src.tiles import max as max
from lucerne._src.tiles import maximum as maximum
from lucerne._src.tiles import mean as mean
from lucerne._src.tiles import min as min
from lucerne._src.tiles import minimum as minimum
from lucerne._src.tiles import prod as prod
from lucerne._src.tiles import program_id as program_id
from lucerne._src.tiles import range as range
from lucerne._src.tiles import store as store
from lucerne._src.tiles import sum as sum
from lucerne._src.tiles import variable as variable
from lucerne._src.tiles import where as where
from lucerne._src.tiles import zeros as zeros
from lucerne._src.tiles.language import ELEMENTWISE as _ELEMENTWISE

globals().update(_ELEMENTWISE)
