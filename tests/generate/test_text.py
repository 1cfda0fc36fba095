"""Tokens of texts, as the kinds of tokenizer in files make them, and texts that come in pieces."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucerne._src.io.errors import CorruptFileError, UnsupportedFileError
from lucerne.generate import TextStream, Vocabulary, load_vocabulary
from lucerne.quantization import load_gguf
from tests.serve.language import byte_facts, model_of, piece_facts


def of_file(facts: dict[str, Any]) -> Vocabulary:
    return load_vocabulary(load_gguf(io.BytesIO(model_of(facts)[0])).metadata)


KINDS = {"bytes": byte_facts(), "pieces": piece_facts(), "qwen2": byte_facts("qwen2"),
         "llama-bpe": byte_facts("llama-bpe")}  # fmt: skip
MADE = {name: of_file(facts) for name, facts in KINDS.items()}


def pieces(name: str, text: str) -> list[str]:
    return [KINDS[name]["tokenizer.ggml.tokens"][t] for t in MADE[name].encode(text)]


@pytest.mark.parametrize(
    ("name", "text", "want"),
    [
        ("bytes", "hello world", ["hello", "Ġworld"]),
        ("bytes", "hell held", ["hell", "Ġ", "he", "ld"]),
        ("bytes", "<|end|>he", ["<|end|>", "he"]),
        ("llama-bpe", "1234", ["1", "2", "3", "4"]),
        ("pieces", "hello", ["<s>", "▁hello"]),
        ("pieces", "hello wo", ["<s>", "▁hello", "▁w", "o"]),
        ("pieces", "é", ["<s>", "▁", "<0xC3>", "<0xA9>"]),
        ("pieces", "", ["<s>"]),
    ],
)
def test_texts_are_cut_as_the_file_says(name: str, text: str, want: list[str]) -> None:
    assert pieces(name, text) == want


def test_a_text_that_begins_with_the_first_token_gets_no_other() -> None:
    assert pieces("pieces", "<s>hello") == ["<s>", "▁hello"]


_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=30)


@given(_TEXTS, st.sampled_from(sorted(MADE)))
def test_tokens_give_the_text_back(text: str, name: str) -> None:
    special = ("<", "▁")
    text = "".join(c for c in text if c not in special)
    assert MADE[name].decode(MADE[name].encode(text)) == text


@given(_TEXTS, st.sampled_from(sorted(MADE)), st.lists(st.text("abc é", min_size=1), max_size=2))
def test_a_stream_is_the_text_up_to_the_first_stop(text: str, name: str, stop: list[str]) -> None:
    text = "".join(c for c in text if c not in ("<", "▁"))
    vocabulary = MADE[name]
    stream = TextStream(vocabulary, stop)
    shown = ""
    for token in vocabulary.encode(text):
        shown += stream.add(token)
        assert not any(s in shown for s in stop)
        if stream.ended:
            break
    shown += stream.end()
    found = [at for at in (text.find(s) for s in stop) if at >= 0]
    assert shown == (text[: min(found)] if found else text)
    assert stream.ended == bool(found)


def test_what_follows_a_text_keeps_its_space() -> None:
    vocabulary = MADE["pieces"]
    before, all_of_it = vocabulary.encode("hello"), vocabulary.encode("hello wo")
    stream = TextStream(vocabulary, before=before)
    assert "".join(stream.add(t) for t in all_of_it[len(before) :]) + stream.end() == " wo"


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"tokenizer.ggml.model": "bert"}, UnsupportedFileError, "'bert'"),
        ({"tokenizer.ggml.model": None}, CorruptFileError, "no text"),
        ({"tokenizer.ggml.pre": "tekken"}, UnsupportedFileError, "'tekken'"),
        ({"tokenizer.ggml.tokens": None}, CorruptFileError, "list of texts"),
        ({"tokenizer.ggml.tokens": ["a", "a"]}, CorruptFileError, "twice"),
        ({"tokenizer.ggml.merges": ["he"]}, CorruptFileError, "no pair"),
        ({"tokenizer.ggml.merges": ["h q"]}, CorruptFileError, "gives no token"),
        ({"tokenizer.ggml.token_type": [1]}, CorruptFileError, "numbers"),
        ({"tokenizer.ggml.eos_token_id": 10**6}, CorruptFileError, "eos is token"),
    ],
)
def test_facts_that_are_none_are_refused(
    change: dict[str, Any], error: type[Exception], text: str
) -> None:
    facts = {k: v for k, v in {**byte_facts(), **change}.items() if v is not None}
    with pytest.raises(error, match=text):
        load_vocabulary(facts)
