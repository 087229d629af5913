"""Java's properties, as java.util.Properties reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config_file import read_file


def read(tmp_path: Path, text: str) -> tuple[dict[str, str], list[str]]:
    """Names and texts in the order of the file, and what is wrong with it."""
    file = tmp_path / "a.properties"
    file.write_bytes(text.encode())
    problems: list[str] = []
    entries = read_file(file, problems)
    return {entry.name: entry.text for entry in entries}, [
        problem.removeprefix(f"{tmp_path}/") for problem in problems
    ]


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=1\nb:2\nc 3\nd\t=\t4\ne = = 5\nf", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "= 5", "f": ""}),
        ("# one\n  ! two\n\n \t\f\na=1 # no comment", {"a": "1 # no comment"}),
        ("a\\ b=1\nc\\=d=2\ne\\:f=3\n\\#g=4", {"a b": "1", "c=d": "2", "e:f": "3", "#g": "4"}),
        ("a=b,\\\n    c,\\\n\td\nx=1", {"a": "b,c,d", "x": "1"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\r\n  c\r\nd=e\rf=g\n", {"a": "bc", "d": "e", "f": "g"}),
        ("a=b\\", {"a": "b"}),
        ("a=b\\tc\\nd\\fe\\rf\\qg\\\\h", {"a": "b\tc\nd\fe\rfqg\\h"}),
        ("a->b.topics=orders\\\\..*", {"a->b.topics": "orders\\..*"}),
        ("na\\u006De=\\u00e9\\u20AC\\ud83d\\ude00", {"name": "\u00e9\u20ac\U0001f600"}),
        ("a=b\x0bc\x85d\u2028e", {"a": "b\x0bc\x85d\u2028e"}),
        ("a\u00a0b=c", {"a\u00a0b": "c"}),
    ],
)
def test_a_file_is_read_as_java_reads_it(tmp_path: Path, text: str, settings: dict[str, str]) -> None:
    assert read(tmp_path, text) == (settings, [])


@pytest.mark.parametrize("text", ["a=\\u12\n", "a=\\uGGGG\n", "\\u=1\n"])
def test_half_an_escape_is_told_with_its_line(tmp_path: Path, text: str) -> None:
    _, problems = read(tmp_path, f"x=1\n{text}")
    assert problems == ["a.properties:2: four hexadecimal digits belong behind \\u"]


def test_half_of_a_character_is_told_with_its_line(tmp_path: Path) -> None:
    _, problems = read(tmp_path, "a=\\ud83d\n")
    assert problems == ["a.properties:1: there is half of a character: \\u stands for UTF-16"]
