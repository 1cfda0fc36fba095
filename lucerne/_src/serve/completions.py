"""Texts over HTTP as OpenAI's clients ask for them: completions and chats, whole or as a stream.

What a client may ask is a closed list: a field that would change the text and is not there is
refused, never ignored.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lucerne._src.generate.sampling import Sampling
from lucerne._src.generate.text import TextStream, Vocabulary
from lucerne._src.serve.http import Exchange, HTTPError, parsed
from lucerne._src.serve.language_models import LanguageModel, RunningText

MOST_CHOICES = 16
MOST_STOPS = 4
_STREAM = "text/event-stream"
_WITHOUT_EFFECT = frozenset({"user", "store", "metadata", "service_tier", "safety_identifier"})
"""Fields that say nothing about the text."""
_NOTHING: dict[str, tuple[Any, ...]] = {
    "presence_penalty": (0, None), "frequency_penalty": (0, None), "logit_bias": (None, {}),
    "logprobs": (None, False), "top_logprobs": (None, 0), "echo": (None, False),
    "suffix": (None, ""), "best_of": (None, 1), "tools": (None, []), "tool_choice": (None, "none"),
    "functions": (None, []), "response_format": (None, {"type": "text"}), "modalities": (None,),
    "parallel_tool_calls": (None, True, False), "reasoning_effort": (None,),
}  # fmt: skip
"""Fields that are taken with these values alone: what they ask for otherwise is not there."""


@dataclass(frozen=True)
class Asked:
    """What a request wants."""

    model: LanguageModel
    prompts: list[list[int]]
    most: int
    sampling: Sampling
    choices: int
    """For each prompt."""
    stop: tuple[str, ...]
    stream: bool
    usage: bool
    """Whether a stream ends with what was used."""
    chat: bool


class _Fields:
    """The fields of a request, each taken once."""

    def __init__(self, body: bytes) -> None:
        found = parsed(body)
        if not isinstance(found, dict):
            raise HTTPError(400, "the body is no object")
        self.left: dict[str, Any] = found

    def take(self, name: str, kind: type | tuple[type, ...], default: Any, says: str) -> Any:
        """A field, if it is of this kind."""
        found = self.left.pop(name, None)
        if found is None:
            return default
        if isinstance(found, bool) != (kind is bool) or not isinstance(found, kind):
            raise HTTPError(400, f"{name!r} is {says}")
        return found

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """A number within bounds."""
        found: float = self.take(name, (int, float), default, "a number")
        if not least <= found <= most:
            raise HTTPError(400, f"{name!r} is a number from {least:g} to {most:g}")
        return found

    def count(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number within bounds."""
        found: int = self.take(name, int, default, "a whole number")
        if not least <= found <= most:
            raise HTTPError(400, f"{name!r} is a whole number from {least} to {most}")
        return found

    def end(self) -> None:
        """Refuse what was not taken."""
        for name, value in self.left.items():
            if name in _WITHOUT_EFFECT:
                continue
            if name not in _NOTHING:
                raise HTTPError(400, f"this server does not know the field {name[:80]!r}")
            if value not in _NOTHING[name]:
                raise HTTPError(400, f"{name!r} is not there: leave it out")


def read_asked(body: bytes, models: Mapping[str, LanguageModel], chat: bool) -> Asked:
    """A request, looked at whole before anything is computed."""
    fields = _Fields(body)
    name = fields.take("model", str, "", "the name of a model")
    if name not in models:
        raise HTTPError(404, f"no language model {name[:80]!r}; served are {', '.join(models)}")
    model = models[name]
    prompts = _talk(fields, model.vocabulary) if chat else _prompts(fields, model.vocabulary)
    room = model.capacity - max(len(p) for p in prompts)
    usual = max(room, 1) if chat else 16
    most = fields.count("max_tokens", usual, 1, 1 << 30)
    most = fields.count("max_completion_tokens", most, 1, 1 << 30)
    sampling = Sampling(
        fields.number("temperature", 1.0, 0, 2), fields.count("top_k", 0, 0, 1 << 30),
        fields.number("top_p", 1.0, 1e-9, 1),
        fields.count("seed", secrets.randbits(48), 0, 1 << 62),
    )  # fmt: skip
    options = fields.take("stream_options", dict, {}, "an object")
    asked = Asked(
        model, prompts, most, sampling, fields.count("n", 1, 1, MOST_CHOICES), _stops(fields),
        fields.take("stream", bool, False, "true or false"),
        bool(options.get("include_usage")), chat,
    )  # fmt: skip
    fields.end()
    if len(prompts) * asked.choices > MOST_CHOICES:
        raise HTTPError(400, f"{len(prompts) * asked.choices} texts; at most {MOST_CHOICES}")
    return asked


def _prompts(fields: _Fields, vocabulary: Vocabulary) -> list[list[int]]:
    """One text or several, as signs or as tokens."""
    found = fields.take("prompt", (str, list), None, "a text, tokens, or a list of them")
    many = found if isinstance(found, list) and found and not isinstance(found[0], int) else [found]
    if not found or len(many) > MOST_CHOICES:
        raise HTTPError(400, f"'prompt' is one text, or up to {MOST_CHOICES}")
    made = []
    for each in many:
        if isinstance(each, str):
            made.append(vocabulary.encode(each))
        elif isinstance(each, list) and all(type(t) is int for t in each):
            made.append(list(each))
        else:
            raise HTTPError(400, "'prompt' is a text, tokens, or a list of them")
    return made


def _talk(fields: _Fields, vocabulary: Vocabulary) -> list[list[int]]:
    """The messages of a talk as one text, by the template of the file."""
    messages = fields.take("messages", list, [], "a list of messages")
    if vocabulary.template is None:
        raise HTTPError(400, "the model's file has no template for talks: ask for completions")
    plain = [_message(m) for m in messages]
    if not plain:
        raise HTTPError(400, "'messages' holds one message at least")
    text = rendered(vocabulary, plain)
    return [vocabulary.encode(text)]


def _message(given: Any) -> dict[str, str]:
    """A message with a role and a text; texts in parts are put together."""
    if not isinstance(given, dict) or not isinstance(given.get("role"), str):
        raise HTTPError(400, "a message is an object with 'role' and 'content'")
    content = given.get("content")
    if isinstance(content, list):
        parts = [p.get("text") for p in content if isinstance(p, dict) and p.get("type") == "text"]
        texts = [p for p in parts if isinstance(p, str)]
        content = "".join(texts) if len(texts) == len(content) else None
    if not isinstance(content, str):
        raise HTTPError(400, "the content of a message is a text, or parts of the type 'text'")
    if given.keys() - {"role", "content", "name"}:
        raise HTTPError(400, "a message has 'role', 'content' and 'name', and nothing else here")
    return {k: v for k, v in given.items() if isinstance(v, str)} | {"content": content}


def rendered(vocabulary: Vocabulary, messages: list[dict[str, str]]) -> str:
    """The text of a talk. Templates come with files: they run where they can't reach anything."""
    try:
        sandbox: Any = importlib.import_module("jinja2.sandbox")
    except ImportError:
        raise HTTPError(501, "talks need jinja2: pip install 'lucerne[serve]'") from None

    def refuse(text: str) -> str:
        raise ValueError(text)

    place = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    try:
        text: str = place.from_string(vocabulary.template).render(
            messages=messages, add_generation_prompt=True, raise_exception=refuse,
            bos_token=vocabulary.begin_text, eos_token=vocabulary.end_text,
        )  # fmt: skip
    except Exception as error:  # whatever a template does: it is the file's code, or the request's
        raise HTTPError(400, f"the model's template refuses these messages: {error}") from None
    return text


def _stops(fields: _Fields) -> tuple[str, ...]:
    found = fields.take("stop", (str, list), [], "a text, or a list of texts")
    made = [found] if isinstance(found, str) else found
    if len(made) > MOST_STOPS or not all(isinstance(s, str) and s for s in made):
        raise HTTPError(400, f"'stop' is a text, or up to {MOST_STOPS} texts")
    return tuple(made)


class CompletionWriter:
    """One request's texts: begun together, told as they come or at the end."""

    def __init__(self, asked: Asked, seconds: float) -> None:
        self.asked, self.seconds = asked, seconds
        self.id = f"{'chatcmpl' if asked.chat else 'cmpl'}-{secrets.token_hex(12)}"
        self.created = int(time.time())
        self.running: list[RunningText] = []
        self._begun: set[int] = set()

    async def write(self, told: Callable[[int, str, str | None], Any]) -> None:
        """All texts to their ends; `told(index, text, why it ended)` for each piece."""
        asked = self.asked
        for prompt in asked.prompts:
            for choice in range(asked.choices):
                own = replace(asked.sampling, seed=asked.sampling.seed + choice)
                self.running.append(asked.model.put(prompt, asked.most, own))
        work = [asyncio.ensure_future(self._one(n, each, told))
                for n, each in enumerate(self.running)]  # fmt: skip
        try:
            await asyncio.gather(*work)
        finally:
            for task in work:
                task.cancel()

    async def _one(
        self, index: int, running: RunningText, told: Callable[[int, str, str | None], Any]
    ) -> None:
        model = self.asked.model
        text = TextStream(model.vocabulary, self.asked.stop, running.request.prompt)
        async for token in running.tokens(self.seconds):
            if token in model.vocabulary.ends:
                break
            new = text.add(token)
            if new:
                await told(index, new, None)
            if text.ended:
                running.cancel()
                break
        rest = text.end()
        if rest:
            await told(index, rest, None)
        length = not text.ended and running.request.ended == "length"
        await told(index, "", "length" if length else "stop")

    def cancel(self) -> None:
        """Nobody waits any more."""
        for each in self.running:
            each.cancel()

    def usage(self) -> dict[str, int]:
        """Tokens read and written."""
        read = sum(len(p) for p in self.asked.prompts)
        wrote = sum(len(each.request.tokens) for each in self.running)
        return {
            "prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote,
        }  # fmt: skip

    def head(self, part: bool) -> dict[str, Any]:
        """What every answer, and every part of one, begins with."""
        kind = "text_completion"
        if self.asked.chat:
            kind = "chat.completion.chunk" if part else "chat.completion"
        return {
            "id": self.id, "object": kind, "created": self.created, "model": self.asked.model.name,
        }  # fmt: skip

    def choice(self, index: int, text: str, reason: str | None, part: bool) -> dict[str, Any]:
        """One text, or a piece of one."""
        told: dict[str, Any] = {"index": index, "finish_reason": reason, "logprobs": None}
        if not self.asked.chat:
            return {**told, "text": text}
        if part:
            first = {} if index in self._begun else {"role": "assistant"}
            self._begun.add(index)
            return {**told, "delta": first | ({"content": text} if reason is None else {})}
        return {**told, "message": {"role": "assistant", "content": text, "refusal": None}}


async def answer(x: Exchange, asked: Asked, seconds: float) -> None:
    """Write what was asked for, and stop if the client leaves."""
    writer = CompletionWriter(asked, seconds)
    work = asyncio.ensure_future((_stream if asked.stream else _whole)(x, writer))
    try:
        await x.unless_gone(work)
    finally:
        writer.cancel()


async def _whole(x: Exchange, writer: CompletionWriter) -> None:
    texts: dict[int, str] = {}
    reasons: dict[int, str] = {}

    async def told(index: int, text: str, reason: str | None) -> None:
        texts[index] = texts.get(index, "") + text
        if reason is not None:
            reasons[index] = reason

    await writer.write(told)
    choices = [writer.choice(n, texts[n], reasons[n], False) for n in sorted(texts)]
    await x.answer_json({**writer.head(False), "choices": choices, "usage": writer.usage()})


async def _stream(x: Exchange, writer: CompletionWriter) -> None:
    asked, begun = writer.asked, False

    async def send(value: Any) -> None:
        nonlocal begun
        if not begun:  # an error before the first piece is an answer of its own
            begun = True
            await x.begin(_STREAM)
        await x.part(b"data: " + json.dumps(value).encode() + b"\n\n")

    async def told(index: int, text: str, reason: str | None) -> None:
        choice = writer.choice(index, text, reason, True)
        await send({**writer.head(True), "choices": [choice]})

    try:
        await writer.write(told)
    except HTTPError as error:
        if not begun:
            raise
        await send(error_body(error))
    else:
        if asked.usage:
            await send({**writer.head(True), "choices": [], "usage": writer.usage()})
    await x.part(b"data: [DONE]\n\n", last=True)


def error_body(error: HTTPError) -> dict[str, Any]:
    """An error as these clients read it."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"error": {"message": error.text, "type": kind, "param": None, "code": error.status}}
