"""The side of a rank that the agent of its machine watches."""

from __future__ import annotations

import faulthandler
import os
import signal

from lucerne._src.base.config import launch_variable
from lucerne._src.distributed.run.board import Board

BOARD_VARIABLE = "LUCERNE_BOARD"
"""Path of the board; stacks go into files beside it."""


class _Kept:
    stacks: object = None
    """The file must stay open as long as the signal may come."""


def watched_board(rank: int) -> Board:
    """The board this rank writes to; one that goes nowhere where no agent watches."""
    path = launch_variable(BOARD_VARIABLE)
    row = launch_variable("LOCAL_RANK")
    if not path or not row or not os.path.exists(path):
        return Board()
    if hasattr(faulthandler, "register") and _Kept.stacks is None:
        _Kept.stacks = file = open(f"{path}.stack.{row}", "w")  # noqa: SIM115
        faulthandler.register(signal.SIGUSR1, file=file, all_threads=True)
    board = Board(path, int(row))
    board.row["rank"] = rank
    board.write()
    return board
