"""What a watched program raises when it gave a number that is not finite."""

from __future__ import annotations

from typing import Any


class NotFiniteError(Exception):
    """It has written to nothing, or that is undone: the call can be made in another way."""

    def __init__(self, program: Any, arguments: Any, numbers: Any) -> None:
        super().__init__("a number that is not finite")
        self.program, self.arguments, self.numbers = program, arguments, numbers

    def birth(self) -> Any:
        """Where it was born (a `blame.Birth`), by the steps of the program alone; None: the program
        was given such numbers."""
        return self.program.birth(self.arguments, self.numbers)
