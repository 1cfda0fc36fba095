"""`python -m tests.shadow.models`: training steps of usual models under shadow mode: no alarms."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import lucerne as torch
from tests.lazy import models

Make = Callable[[], tuple[Any, Any]]
MODELS: dict[str, Make] = {
    "MLP": models.mlp,
    "GPT": lambda: models.gpt(64, 2, 32, 4),
    "ResNet": models.resnet,
    "LSTM": models.lstm,
}


def trained(make: Make, *, cast: bool, inside: bool, calls: int = 3) -> Any:
    """A compiled model, after some calls under shadow mode.

    `cast`: under autocast to bfloat16. `inside`: the whole step is compiled, else the loss.
    """
    torch.manual_seed(0)
    model, (x, y) = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss_of(x: Any, y: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=cast):
            return torch.nn.functional.cross_entropy(model(x).float(), y)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        return loss

    options = {"shadow": calls - 1, "shadow_action": "raise"}
    compiled: Any = torch.compile(step if inside else loss_of, options=options)
    for _ in range(calls):
        result = compiled(x, y)
        if not inside:
            optimizer.zero_grad()
            result.backward()
            optimizer.step()
    return compiled


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.shadow.models", description=__doc__)
    parser.add_argument("--only", default="", help="part of a name")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    alarms = 0
    for name, make in MODELS.items():
        for cast in (False, True):
            for inside in (True, False):
                told = f"{name}{' bfloat16' if cast else ''}, {'step' if inside else 'loss'}"
                if options.only not in told:
                    continue
                began = time.perf_counter()
                try:
                    made = trained(make, cast=cast, inside=inside)
                except AssertionError as error:
                    alarms += 1
                    print(f"{told}: ALARM\n{error}")
                    continue
                seconds = time.perf_counter() - began
                print(f"{told}: silent, {made.given_up or 'compiled'}, {seconds:.1f} s", flush=True)
    print(f"{alarms} alarms")
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
