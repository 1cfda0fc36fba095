"""The command `lucerne serve`."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

from lucerne._src.serve.app import App, ServeLimits
from lucerne._src.serve.language_models import LanguageModelSource

DESCRIPTION = "serve exported programs (Open Inference Protocol) and language models (OpenAI's)"


def add_arguments(made: argparse.ArgumentParser) -> None:
    """The options, each with the default of `ServeLimits`."""
    usual = ServeLimits()
    made.add_argument(
        "folder", nargs="?", help="holds name/version/model.pt2; the newest version is served"
    )
    made.add_argument(
        "--language-model", action="append", default=[], metavar="[NAME=]FILE.gguf",
        help="serve a GGUF file as NAME (else the file's name); may be given several times",
    )  # fmt: skip
    made.add_argument("--slots", type=int, default=8, help="texts written side by side")
    made.add_argument("--context", type=int, default=2048, help="tokens of a text with its prompt")
    made.add_argument(
        "--round-inputs", action="store_true", help="inputs of layers in 8 bits too: faster"
    )
    made.add_argument("--host", default="127.0.0.1")
    made.add_argument("--port", type=int, default=8000)
    made.add_argument("--max-rows", type=int, default=usual.most_rows, help="of one call")
    made.add_argument(
        "--max-wait-ms", type=float, default=usual.wait * 1e3, help="for other requests"
    )
    made.add_argument("--max-queue", type=int, default=usual.most_waiting, help="more: 429")
    made.add_argument("--max-body-mb", type=float, default=usual.most_bytes / (1 << 20))
    made.add_argument("--timeout", type=float, default=usual.seconds, help="seconds; then 504")
    made.add_argument("--drain", type=int, default=30, help="seconds for open requests at the end")
    made.set_defaults(run=serve)


def serve(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; requests that are open then are answered."""
    try:
        import uvicorn
    except ImportError:
        print(
            "lucerne serve needs uvicorn: pip install 'lucerne[serve]'",
            file=sys.stderr,
        )
        return 2
    limits = ServeLimits(
        options.max_rows, options.max_wait_ms / 1e3, options.max_queue,
        int(options.max_body_mb * (1 << 20)), options.timeout,
    )  # fmt: skip
    sources = [_source(each, options) for each in options.language_model]
    if options.folder is None and not sources:
        print("lucerne serve: name a folder, or --language-model FILE.gguf", file=sys.stderr)
        return 2
    config = uvicorn.Config(
        App(options.folder, limits, sources), host=options.host, port=options.port, lifespan="on",
        access_log=False, log_level="warning", timeout_graceful_shutdown=options.drain,
    )  # fmt: skip
    server = uvicorn.Server(config)
    # uvicorn raises a signal again that has ended it: an end that was asked for is a success.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, _ended)
    server.run()
    return 0 if server.started else 1


def _source(given: str, options: argparse.Namespace) -> LanguageModelSource:
    name, named, path = given.rpartition("=")
    return LanguageModelSource(
        name if named else Path(path).stem, path, options.slots, options.context,
        options.round_inputs,
    )  # fmt: skip


def _ended(number: int, frame: Any) -> None:
    """Nothing more to do: the server has drained."""
