"""`lucerne.tiles`: kernels written in Python over blocks of tensors, compiled by the CPU engine."""

from __future__ import annotations

from lucerne.tiles.index import TileError as TileError
from lucerne.tiles.kernel import In as In
from lucerne.tiles.kernel import Kernel as Kernel
from lucerne.tiles.kernel import Out as Out
from lucerne.tiles.kernel import empty as empty
from lucerne.tiles.kernel import kernel as kernel
from lucerne.tiles.kernel import like as like
from lucerne.tiles.language import ELEMENTWISE as _ELEMENTWISE
from lucerne.tiles.language import Block as Block
from lucerne.tiles.language import abs as abs
from lucerne.tiles.language import arange as arange
from lucerne.tiles.language import argmax as argmax
from lucerne.tiles.language import cummax as cummax
from lucerne.tiles.language import cumprod as cumprod
from lucerne.tiles.language import cumsum as cumsum
from lucerne.tiles.language import dot as dot
from lucerne.tiles.language import floor as floor
from lucerne.tiles.language import full as full
from lucerne.tiles.language import isnan as isnan
from lucerne.tiles.language import keep as keep
from lucerne.tiles.language import load as load
from lucerne.tiles.language import max as max
from lucerne.tiles.language import maximum as maximum
from lucerne.tiles.language import mean as mean
from lucerne.tiles.language import min as min
from lucerne.tiles.language import minimum as minimum
from lucerne.tiles.language import prod as prod
from lucerne.tiles.language import program_id as program_id
from lucerne.tiles.language import range as range
from lucerne.tiles.language import store as store
from lucerne.tiles.language import sum as sum
from lucerne.tiles.language import variable as variable
from lucerne.tiles.language import where as where
from lucerne.tiles.language import zeros as zeros
from lucerne.tiles.tuning import Tuned as Tuned
from lucerne.tiles.tuning import autotune as autotune

globals().update(_ELEMENTWISE)
