"""What a frame's end means to the frame below it: one rule for each kind of `Link`."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NoReturn


class Delivery(enum.Enum):
    """How a frame gives control back."""

    RETURN = "return"
    YIELD = "yield"
    RAISE = "raise"


LinkRule = Callable[[Any, Any, tuple[Any, ...], Delivery, Any], Any]
"""`rule(machine, frame below, data of the link, delivery, value)`. For RAISE: whether the
exception ends here, or the exception that takes its place; otherwise true, as the frame on top has
changed. A rule must not stop: the instruction that made the link is over."""

RULES: dict[str, LinkRule] = {}


def link_rule(kind: str) -> Callable[[LinkRule], LinkRule]:
    """Enter a rule under its name."""

    def enter(rule: LinkRule) -> LinkRule:
        RULES[kind] = rule
        return rule

    return enter


_ASKING: dict[str, Callable[[Any], Any]] = {
    asks.__name__: asks for asks in (bool, format, iter, repr, str)
}


def name_in_full(kind: type) -> str:
    """The name of a class as errors give it that name its module too."""
    home, name = kind.__module__, kind.__qualname__
    return name if home in ("builtins", "__main__") else f"{home}.{name}"


def wrong_answer(data: tuple[str, str, str], answer: Any) -> NoReturn:
    """A builtin asked a method of a class (`data`: its name in full is the last) and can't use the
    answer: raise what this Python says then, asked of a class of that name which answers so."""
    asking, method, owner = data
    members = {method: lambda self, *given: answer, "__module__": "builtins", "__qualname__": owner}
    _ASKING[asking](type("object", (), members)())
    raise AssertionError(f"{asking} takes {answer!r} from {owner}.{method}")


@link_rule("push")
def _push(machine: Any, frame: Any, data: tuple[Any, ...], delivery: Delivery, value: Any) -> bool:
    if delivery is Delivery.RAISE:
        return False
    frame.stack.append(value)
    return True


@link_rule("drop")
def _drop(machine: Any, frame: Any, data: tuple[Any, ...], delivery: Delivery, value: Any) -> bool:
    return delivery is not Delivery.RAISE


@link_rule("init")
def _init(machine: Any, frame: Any, data: tuple[Any, ...], delivery: Delivery, value: Any) -> bool:
    """The object whose `__init__` has run."""
    if delivery is Delivery.RAISE:
        return False
    if value is not None:
        raise TypeError(f"__init__() should return None, not '{type(value).__name__}'")
    frame.stack.append(data[0])
    return True
