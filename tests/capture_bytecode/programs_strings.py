"""f-strings, formatting, strings."""

import datetime
import re
import string

import lucerne as torch
from tests.capture_bytecode.cases import case


@case(lambda: (3.14159, "text", 42))
def f_strings(x, s, n):
    width = 10
    return (
        f"{x:.2f}",
        f"{s!r}",
        f"{s!s:>{width}}",
        f"{n:#x}|{n:08b}|{n:,}",
        f"{x=}",
        f"{n + 1 = }",
        f"{s!a:*^{width}}",
        f"{{{n}}}",
        f"{'a' if n else 'b'}{x:{width}.{3}}",
        f"{[k for k in range(3)]}",
        f"{datetime.date(2020, 1, 2):%d.%m.%Y}",
    )


@case(lambda: ("a", 1))
def bad_format(s, n):
    return f"{n:>5}" + f"{s:d}"


class Money:
    def __init__(self, amount):
        self.amount = amount

    def __format__(self, spec):
        return f"{self.amount}{spec or '$'}"

    def __str__(self):
        return "money"

    def __repr__(self):
        return f"Money<{self.amount}>"


@case(lambda: (Money(5),))
def own_format(m):
    return (
        f"{m}",
        f"{m:EUR}",
        f"{m!s}",
        f"{m!r}",
        f"{m!r:>12}",
        str(m),
        repr([m]),
        "%s %r" % (m, m),
        "{:X} {!r}".format(m, m),
    )


@case(lambda: ("Hello, World",))
def string_methods(s):
    return (
        s.upper(),
        s.split(", "),
        s[::-1],
        s.replace("l", "L", 2),
        "-".join(reversed(s.split())),
        s.find("W"),
        s.startswith(("He", "x")),
        s * 2,
        "ll" in s,
        s.partition(","),
        s.center(20, "*"),
        [c for c in s if c in string.ascii_uppercase],
        s.encode().decode("ascii"),
        s.translate({72: "J"}),
        "%5.1f|%-5s|%%" % (2.25, "ab"),
    )


@case(lambda: ("a=1, b=22, c=x",))
def regular_expressions(s):
    found = re.findall(r"(\w)=(\d+)", s)
    return (
        found,
        re.sub(r"\d+", lambda m: str(int(m.group()) * 2), s),
        bool(re.match("a", s)),
        re.split(", ", s),
    )


@case(lambda: (["b", "a"],))
def join_error(xs):
    return ", ".join(xs) + ", ".join([*xs, 1])


@case(lambda: (15,))
def fizzbuzz(n):
    return [("Fizz" * (not k % 3) + "Buzz" * (not k % 5)) or str(k) for k in range(1, n + 1)]


@case(lambda: ("the quick brown the fox the",))
def word_counts(text):
    counts = {}
    for word in text.split():
        counts[word] = counts.get(word, 0) + 1
    return sorted(counts.items(), key=lambda p: (-p[1], p[0]))


@case(lambda: ("racecar",), lambda: ("nope",))
def palindromes(s):
    i, j = 0, len(s) - 1
    while i < j:
        if s[i] != s[j]:
            return False
        i, j = i + 1, j - 1
    return True


@case(lambda: ("hello", 3))
def caesar(s, k):
    return "".join(chr((ord(c) - 97 + k) % 26 + 97) if c.isalpha() else c for c in s)


@case(lambda: ("xäß€",))
def unicode_text(s):
    return s.encode("utf-8"), len(s), s.casefold(), ascii(s), "\N{BULLET}", s[1:3], rf"\n{s}"


@case(lambda: (torch.arange(3.0), 2))
def tensor_described(x, k):
    return f"{tuple(x.shape)} {x.dtype} {k:>3}", f"{x.sum().item():.1f}", "%s" % list(x.shape)


@case(lambda: (torch.arange(4.0), "sum"), lambda: (torch.arange(4.0), "mean"))
def tensor_method_by_name(x, name):
    return getattr(x, name)(), getattr(torch, name)(x * 2), f"ran {name}"
