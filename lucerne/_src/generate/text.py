"""Texts to tokens and back: the tokenizer of a GGUF file, and texts that come token by token."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lucerne._src.io.errors import CorruptFileError, UnsupportedFileError

_NOT_WHOLE = "\N{REPLACEMENT CHARACTER}"
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
"""What stands for a space in pieces of the kind "llama"."""
_LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = {
    "default": None, "gpt-2": None,
    "llama-bpe": rf"{_LETTERS}|\p{{N}}{{1,3}}|{_SIGNS}",
    "qwen2": rf"{_LETTERS}|\p{{N}}|{_SIGNS}",
}  # fmt: skip
"""How texts are cut into words before bytes are joined; None: GPT-2's own way."""
_CONTEXT = 6
"""Tokens of the text before that are decoded along with the first new one."""
_UNKNOWN, _CONTROL, _USERS = 2, 3, 4
"""Kinds of tokens, as the files number them."""


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer, with what else a file says about its tokens."""

    tokenizer: Any
    """A `tokenizers.Tokenizer`, or what encodes and decodes as it does."""
    words: int
    """How many tokens there are."""
    begin: tuple[int, ...] = ()
    """What stands before each text."""
    ends: frozenset[int] = frozenset()
    """Tokens with which a text, or a turn of a talk, ends."""
    begin_text: str = ""
    end_text: str = ""
    template: str | None = None
    """How the messages of a talk become one text (Jinja), if the file says it."""

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with those that stand before each text."""
        found: list[int] = list(self.tokenizer.encode(text, add_special_tokens=False).ids)
        begins = self.begin and tuple(found[: len(self.begin)]) == self.begin
        return found if begins else [*self.begin, *found]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens; those that are none of a text's are left out."""
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return text


def load_vocabulary(metadata: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary of a GGUF file, out of `load_gguf(file).metadata` (needs `tokenizers`)."""
    facts = _Facts(metadata)
    kind = facts.text("model")
    makers = {"gpt2": _of_bytes, "llama": _of_pieces}
    if kind not in makers:
        raise UnsupportedFileError(f"a tokenizer of the kind {kind!r}; built are {list(makers)}")
    pieces = facts.texts("tokens")
    if not pieces or len(set(pieces)) != len(pieces):
        raise CorruptFileError("the file's tokens are none, or some are there twice")
    try:
        package: Any = importlib.import_module("tokenizers")
    except ImportError:
        raise ImportError(
            "texts of this file need the package tokenizers: pip install 'lucerne[serve]'"
        ) from None
    made = makers[kind](package, facts, pieces)
    kinds = facts.kinds(len(pieces))
    for number, add in ((_CONTROL, made.add_special_tokens), (_USERS, made.add_tokens)):
        own = [p for p, k in zip(pieces, kinds, strict=True) if k == number]
        add([package.AddedToken(p, normalized=False) for p in own])
    begin, end = (facts.token(name, len(pieces)) for name in ("bos", "eos"))
    begins = facts.flag("add_bos_token", kind == "llama") and begin is not None
    found = (end, facts.token("eot", len(pieces)), facts.token("eom", len(pieces)))
    template = metadata.get("tokenizer.chat_template")
    return Vocabulary(
        made, len(pieces), (begin,) if begins and begin is not None else (),
        frozenset(t for t in found if t is not None),
        pieces[begin] if begin is not None else "", pieces[end] if end is not None else "",
        template if isinstance(template, str) else None,
    )  # fmt: skip


class _Facts:
    """What a file says of its tokens, looked at before it is believed."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.metadata = metadata

    def _of(self, name: str) -> Any:
        return self.metadata.get(f"tokenizer.ggml.{name}")

    def text(self, name: str, default: str | None = None) -> str:
        found = self._of(name)
        found = default if found is None else found
        if not isinstance(found, str):
            raise CorruptFileError(f"the fact tokenizer.ggml.{name} is {found!r}: no text")
        return found

    def texts(self, name: str) -> list[str]:
        found = self._of(name)
        if not isinstance(found, list) or not all(isinstance(t, str) for t in found):
            raise CorruptFileError(f"the fact tokenizer.ggml.{name} is no list of texts")
        return found

    def numbers(self, name: str, count: int) -> list[Any]:
        found = self._of(name)
        if not isinstance(found, list) or len(found) != count:
            raise CorruptFileError(f"tokenizer.ggml.{name} is no list of {count} numbers")
        if not all(type(n) in (int, float) for n in found):
            raise CorruptFileError(f"tokenizer.ggml.{name} holds something that is no number")
        return found

    def kinds(self, count: int) -> list[Any]:
        return [1] * count if self._of("token_type") is None else self.numbers("token_type", count)

    def token(self, name: str, count: int) -> int | None:
        found = self._of(f"{name}_token_id")
        if found is None:
            return None
        if type(found) is not int or not 0 <= found < count:
            raise CorruptFileError(f"{name} is token {found!r} of {count}")
        return found

    def flag(self, name: str, default: bool) -> bool:
        found = self._of(name)
        return found if isinstance(found, bool) else default


def _of_bytes(package: Any, facts: _Facts, pieces: list[str]) -> Any:
    """GPT-2's kind: bytes are joined pair by pair, in the order of the file."""
    cut = facts.text("pre", "default")
    if cut not in _WORDS:
        raise UnsupportedFileError(f"texts cut as {cut!r}; built are {list(_WORDS)}")
    known = {p: n for n, p in enumerate(pieces)}
    merges = [_pair(line) for line in facts.texts("merges")]
    for left, right in merges:
        if left not in known or right not in known or left + right not in known:
            raise CorruptFileError(f"the pair {left[:40]!r}, {right[:40]!r} gives no token")
    made = package.Tokenizer(package.models.BPE(known, merges, fuse_unk=False))
    parts, pattern = package.pre_tokenizers, _WORDS[cut]
    whole = parts.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    if pattern is not None:
        words = parts.Split(package.Regex(pattern), behavior="isolated")
        whole = parts.Sequence([words, whole])
    made.pre_tokenizer = whole
    made.decoder = package.decoders.ByteLevel()
    return made


def _pair(line: str) -> tuple[str, str]:
    left, space, right = line.partition(" ")
    if not (left and space and right) or " " in right:
        raise CorruptFileError(f"{line[:80]!r} is no pair of tokens")
    return left, right


def _of_pieces(package: Any, facts: _Facts, pieces: list[str]) -> Any:
    """SentencePiece's kind: the neighbours whose union has the highest score are joined first."""
    scores, kinds = facts.numbers("scores", len(pieces)), facts.kinds(len(pieces))
    known = {p: n for n, p in enumerate(pieces)}
    merges: list[tuple[float, int, int]] = []
    for n, piece in enumerate(pieces):
        if kinds[n] not in (_UNKNOWN, _CONTROL) and len(piece) <= 256:
            halves = ((known.get(piece[:k]), known.get(piece[k:])) for k in range(1, len(piece)))
            merges += [(-scores[n], a, b) for a, b in halves if a is not None and b is not None]
    pairs = [(pieces[a], pieces[b]) for _, a, b in sorted(merges)]
    unknown = next((p for p, k in zip(pieces, kinds, strict=True) if k == _UNKNOWN), None)
    bpe = package.models.BPE(known, pairs, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    made = package.Tokenizer(bpe)
    rules, back = package.normalizers, package.decoders
    begins = facts.flag("add_space_prefix", True)
    spaces = rules.Replace(" ", _SPACE)
    made.normalizer = rules.Sequence([rules.Prepend(_SPACE), spaces]) if begins else spaces
    steps = [back.Replace(_SPACE, " "), back.ByteFallback(), back.Fuse()]
    made.decoder = back.Sequence([*steps, back.Strip(" ", 1, 0)] if begins else steps)
    return made


class TextStream:
    """A text whose tokens come one by one: what can be shown of it, and whether it has ended.

    Bytes of a sign that is not whole yet are held back, and so is what may be the beginning of
    one of the texts of `stop`, before which the text ends. `before`: the tokens that it follows.
    """

    def __init__(
        self, vocabulary: Vocabulary, stop: Sequence[str] = (), before: Sequence[int] = ()
    ) -> None:
        self.vocabulary, self.stop = vocabulary, [s for s in stop if s]
        # What stands before decides whether the first token begins with a space.
        self.tokens: list[int] = list(before[-_CONTEXT:])
        self._begin, self._shown_tokens = 0, len(self.tokens)
        self._held = ""
        self.ended = False
        """Whether a text of `stop` was met."""

    def add(self, token: int) -> str:
        """What the next token adds to the text."""
        self.tokens.append(token)
        return self._told(self._new_text(), last=False)

    def end(self) -> str:
        """What was held back, if nothing follows."""
        return self._told(self._new_text(whole=True), last=True)

    def _new_text(self, whole: bool = False) -> str:
        """The text of tokens that were not decoded yet; a few before them decide about spaces."""
        decode = self.vocabulary.decode
        before = decode(self.tokens[self._begin : self._shown_tokens])
        after = decode(self.tokens[self._begin :])
        if after.endswith(_NOT_WHOLE) and not whole:
            return ""
        self._begin, self._shown_tokens = self._shown_tokens, len(self.tokens)
        return after[len(before) :]

    def _told(self, new: str, last: bool) -> str:
        if self.ended:
            return ""
        text = self._held + new
        found = [at for at in (text.find(s) for s in self.stop) if at >= 0]
        if found:
            self.ended, self._held = True, ""
            return text[: min(found)]
        held = 0 if last else max((_overlap(text, s) for s in self.stop), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]


def _overlap(text: str, stop: str) -> int:
    """How many signs at the end of a text may be the beginning of `stop`."""
    most = min(len(text), len(stop) - 1)
    return next((n for n in range(most, 0, -1) if text.endswith(stop[:n])), 0)
