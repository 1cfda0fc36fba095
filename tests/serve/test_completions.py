"""Texts as OpenAI's clients ask for them, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from lucerne._src.serve.app import App, ServeLimits
from lucerne._src.serve.language_models import LanguageModelSource
from lucerne.generate import Decoding, load_decoder, load_vocabulary
from lucerne.quantization import load_gguf
from tests.serve.client import ask, pieces
from tests.serve.language import write

TEXTS, TALKS = "/v1/completions", "/v1/chat/completions"
GREEDY = {"model": "small", "temperature": 0}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("language"))


def served(
    path: Path, talk: Callable[[App], Awaitable[Any]], limits: ServeLimits | None = None,
    slots: int = 4,
) -> Any:  # fmt: skip
    async def whole() -> Any:
        app = App(None, limits, [LanguageModelSource("small", path, slots=slots, context=96)])
        await app.start()
        try:
            return await talk(app)
        finally:
            await app.stop()

    return asyncio.run(whole())


def alone(path: Path, prompt: str, count: int) -> str:
    """The text that the model writes by itself."""
    found = load_gguf(path)
    vocabulary = load_vocabulary(found.metadata)
    decoding = Decoding(load_decoder(found), capacity=96, compile=False)
    stop = sorted(vocabulary.ends)
    [tokens] = decoding.generate([vocabulary.encode(prompt)], count, stop=stop)
    return vocabulary.decode(tokens)


def test_a_text_is_what_the_model_writes(path: Path) -> None:
    async def talk(app: App) -> None:
        asked = {**GREEDY, "prompt": "hello hello", "max_tokens": 12}
        told = (await ask(app, "POST", TEXTS, asked)).json()
        [choice] = told["choices"]
        assert choice["text"] == alone(path, "hello hello", 12)
        assert choice["finish_reason"] == "length"
        assert told["usage"] == {"prompt_tokens": 3, "completion_tokens": 12, "total_tokens": 15}
        both = {**asked, "prompt": ["hello hello", "x"], "n": 2}
        many = (await ask(app, "POST", TEXTS, both)).json()
        assert [c["index"] for c in many["choices"]] == [0, 1, 2, 3]
        texts = [c["text"] for c in many["choices"]]
        assert texts == [choice["text"]] * 2 + [alone(path, "x", 12)] * 2

    served(path, talk)


@pytest.mark.parametrize("chat", [False, True])
def test_a_stream_is_the_whole_in_pieces(path: Path, chat: bool) -> None:
    where = TALKS if chat else TEXTS
    what: Any = (
        {"messages": [{"role": "user", "content": "hello"}]} if chat else {"prompt": "hello"}
    )
    asked = {"model": "small", **what, "max_tokens": 20, "seed": 7, "n": 2}

    async def talk(app: App) -> None:
        whole = (await ask(app, "POST", where, asked)).json()
        many = {**asked, "stream": True, "stream_options": {"include_usage": True}}
        answer = await ask(app, "POST", where, many)
        assert answer.headers["content-type"] == "text/event-stream"
        *parts, last = pieces(answer.body)
        assert last["usage"] == whole["usage"]
        texts, reasons = {0: "", 1: ""}, {}
        for part in parts:
            [c] = part["choices"]
            texts[c["index"]] += c["delta"].get("content", "") if chat else c["text"]
            reasons[c["index"]] = c["finish_reason"]
        for c in whole["choices"]:
            assert texts[c["index"]] == (c["message"]["content"] if chat else c["text"])
            assert reasons[c["index"]] == c["finish_reason"]
        assert texts[0] != texts[1]  # each draws numbers of its own

    served(path, talk)


def test_a_talk_goes_by_the_template_of_the_file(path: Path) -> None:
    async def talk(app: App) -> None:
        messages = [{"role": "system", "content": "be"},
                    {"role": "user", "content": [{"type": "text", "text": "hello"}]}]  # fmt: skip
        asked = {**GREEDY, "messages": messages, "max_tokens": 9}
        found = (await ask(app, "POST", TALKS, asked)).json()["choices"][0]
        text = "<|system|>be<|end|>\n<|user|>hello<|end|>\n<|assistant|>"
        assert found["message"]["content"] == alone(path, text, 9)
        bad = {**asked, "messages": [{"role": "tool", "content": "x"}]}
        answer = await ask(app, "POST", TALKS, bad)
        assert (answer.status, "no role tool" in answer.json()["error"]["message"]) == (400, True)

    served(path, talk)


def test_a_text_ends_before_what_stops_it(path: Path) -> None:
    whole = alone(path, "hello", 40)
    stop = whole[5:7]

    async def talk(app: App) -> None:
        asked = {**GREEDY, "prompt": "hello", "max_tokens": 40, "stop": [stop, "never there"]}
        found = (await ask(app, "POST", TEXTS, asked)).json()
        [choice] = found["choices"]
        assert (choice["text"], choice["finish_reason"]) == (whole[: whole.find(stop)], "stop")
        assert found["usage"]["completion_tokens"] < 40

    served(path, talk)


def test_many_at_once_are_each_as_alone(path: Path) -> None:
    prompts = [f"{'hello ' * n}w{n}" for n in range(10)]

    async def talk(app: App) -> tuple[App, int]:
        bodies = [{**GREEDY, "prompt": p, "max_tokens": 15} for p in prompts]
        found = await asyncio.gather(*(ask(app, "POST", TEXTS, b) for b in bodies))
        for p, answer in zip(prompts, found, strict=True):
            assert answer.json()["choices"][0]["text"] == alone(path, p, 15)
        return app, sum(a.json()["usage"]["completion_tokens"] for a in found)

    app, wrote = served(path, talk)
    assert f'lucerne_tokens_total{{model="small"}} {wrote}\n' in app.metrics.text()


def test_clients_that_leave_give_their_slots_back(path: Path) -> None:
    async def talk(app: App) -> None:
        asked = {"model": "small", "prompt": "hello", "max_tokens": 90, "seed": 3}
        batcher = app._language_models["small"].batcher
        for stream in (False, True):
            body = {**asked, "stream": stream}
            await asyncio.gather(*(ask(app, "POST", TEXTS, body, leaves=0.0) for _ in range(12)))
        while not batcher.is_idle:
            await asyncio.sleep(0.01)
        assert batcher.written < 24 * 80
        assert (await ask(app, "POST", TEXTS, {**asked, "max_tokens": 2})).status == 200

    served(path, talk)


def test_an_error_of_the_model_ends_what_runs_and_nothing_else(path: Path) -> None:
    async def talk(app: App) -> None:
        batcher = app._language_models["small"].batcher
        step = batcher.step

        def failing() -> bool:
            batcher.step = step  # type: ignore[method-assign]
            step()
            raise ValueError("planted")

        batcher.step = failing  # type: ignore[method-assign]
        asked = {**GREEDY, "prompt": "hello", "max_tokens": 5}
        with pytest.warns(UserWarning, match="planted"):
            assert (await ask(app, "POST", TEXTS, asked)).status == 500
        assert (await ask(app, "POST", TEXTS, asked)).status == 200

    served(path, talk)


def test_a_full_queue_is_429(path: Path) -> None:
    async def talk(app: App) -> None:
        asked = {**GREEDY, "prompt": "hello", "max_tokens": 60}
        found = await asyncio.gather(*(ask(app, "POST", TEXTS, asked) for _ in range(8)))
        assert {a.status for a in found} == {200, 429}

    served(path, talk, ServeLimits(most_waiting=2), slots=1)


@pytest.mark.parametrize(
    ("where", "body", "status", "text"),
    [
        (TEXTS, b"{", 400, "not JSON"),
        (TEXTS, b"[" * 100000, 400, "not JSON"),
        (TEXTS, [], 400, "no object"),
        (TEXTS, {"prompt": "x"}, 404, "served are small"),
        (TEXTS, {"model": "small"}, 400, "'prompt' is one text"),
        (TEXTS, {"model": "small", "prompt": ""}, 400, "'prompt' is one text"),
        (TEXTS, {"model": "small", "prompt": [[1], "x", 3]}, 400, "'prompt'"),
        (TEXTS, {"model": "small", "prompt": [1, -2]}, 400, "numbers from 0"),
        (TEXTS, {"model": "small", "prompt": [10**9]}, 400, "numbers from 0"),
        (TEXTS, {"model": "small", "prompt": [5] * 96}, 400, "fit into the context"),
        (TEXTS, {"model": "small", "prompt": "x", "max_tokens": 0}, 400, "'max_tokens'"),
        (TEXTS, {"model": "small", "prompt": "x", "max_tokens": True}, 400, "'max_tokens'"),
        (TEXTS, {"model": "small", "prompt": "x", "temperature": 9}, 400, "from 0 to 2"),
        (TEXTS, {"model": "small", "prompt": "x", "n": 17}, 400, "from 1 to 16"),
        (TEXTS, {"model": "small", "prompt": ["x"] * 9, "n": 2}, 400, "at most 16"),
        (TEXTS, {"model": "small", "prompt": "x", "stop": ["a"] * 5}, 400, "up to 4"),
        (TEXTS, {"model": "small", "prompt": "x", "logprobs": 3}, 400, "'logprobs' is not there"),
        (TEXTS, {"model": "small", "prompt": "x", "grammar": "y"}, 400, "does not know"),
        (TALKS, {"model": "small"}, 400, "one message at least"),
        (TALKS, {"model": "small", "messages": ["x"]}, 400, "is an object"),
        (TALKS, {"model": "small", "messages": [{"role": "user"}]}, 400, "content"),
        (TALKS, {"model": "small", "messages": [{"role": "user", "content": [
            {"type": "image_url"}]}]}, 400, "content"),
        (TALKS, {"model": "small", "messages": [{"role": "user", "content": "x"}],
                 "tools": [{}]}, 400, "'tools' is not there"),
    ],
)  # fmt: skip
def test_what_is_refused(path: Path, where: str, body: Any, status: int, text: str) -> None:
    async def talk(app: App) -> None:
        answer = await ask(app, "POST", where, body)
        assert (answer.status, text in answer.json()["error"]["message"]) == (status, True)
        assert app._language_models["small"].batcher.is_idle

    served(path, talk)


def test_models_are_listed_and_names_are_their_own(path: Path) -> None:
    async def talk(app: App) -> None:
        [model] = (await ask(app, "GET", "/v1/models")).json()["data"]
        assert model == (await ask(app, "GET", "/v1/models/small")).json()
        assert (model["id"], model["object"]) == ("small", "model")
        assert (await ask(app, "GET", "/v1/models/other")).status == 404

    served(path, talk)
    twice = [LanguageModelSource("small", path)] * 2
    with pytest.raises(ValueError, match="names of their own"):
        App(None, None, twice)


def test_templates_reach_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A template is somebody's code: it runs in a sandbox."""
    attack = "{{ messages.__class__.__mro__[1].__subclasses__() }}"

    async def talk(app: App) -> None:
        model = app._language_models["small"]
        object.__setattr__(model.vocabulary, "template", attack)
        asked = {**GREEDY, "messages": [{"role": "user", "content": "x"}]}
        answer = await ask(app, "POST", TALKS, asked)
        assert answer.status == 400
        assert "unsafe" in answer.json()["error"]["message"]

    served(path, talk)
