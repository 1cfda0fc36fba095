"""`python -m benchmarks`: every benchmark is found, with a line that says what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.__main__ import HERE, available, main

PROGRAM = '"""What it measures.\n\nMore."""\n\nif __name__ == "__main__":\n    pass\n'


def test_every_program_is_found() -> None:
    found = available()
    assert {"suite", "compiled", "survey", "against", "overhead", "where"} <= set(found)
    assert all(len(line) > 10 for line in found.values()), "a benchmark says what it is"
    for name in found:
        assert (HERE / f"{name}.py").is_file() or (HERE / name / "__main__.py").is_file()


def test_programs_of_a_folder(tmp_path: Path) -> None:
    files = {"one.py": PROGRAM, "two/__main__.py": PROGRAM, "part.py": '"""A part."""\n'}
    for name, text in (files | {"__main__.py": PROGRAM, "worker.py": PROGRAM}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert available(tmp_path) == {"one": "What it measures.", "two": "What it measures."}


# arguments, exit code, part of what is said
CALLS = [
    ([], 0, "suite "),
    (["--help"], 0, "compiled "),
    (["nothing"], 2, "no benchmark 'nothing'; there are against, "),
    (["explain", "--help"], 0, "usage"),
    (["explain", "--wrong"], 2, "usage"),
]


@pytest.mark.parametrize(("arguments", "code", "said"), CALLS)
def test_the_door(
    arguments: list[str], code: int, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == code
    assert said in "".join(capfd.readouterr())
