"""`sasl.jaas.config` of Java's clients: `MODULE required name="value" ... ;`. Pure; nothing that goes wrong
shows a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""\s* (?: "((?:[^"\\]|\\.)*)" | '((?:[^'\\]|\\.)*)' | ([^\s"'=;]+) | ([=;]) )""", re.VERBOSE | re.DOTALL
)
_FLAGS = ("required", "requisite", "sufficient", "optional")


@dataclass(frozen=True, slots=True, kw_only=True)
class JaasEntry:
    """One login module with its options."""

    module: str
    options: dict[str, str] = field(repr=False)

    @property
    def module_name(self) -> str:
        """The module's class without its package."""
        return self.module.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class _Token:
    text: str = field(repr=False)
    is_sign: bool


def parse_jaas(text: str) -> JaasEntry:
    """Read the one login module that the text configures. Raises ValueError that says what is expected."""
    tokens = _tokens(text)
    module, flag = _word(tokens, "the class of a login module"), _word(tokens, "'required'")
    if flag.lower() not in _FLAGS:
        raise ValueError("expected 'required' after the class of the login module")
    options: dict[str, str] = {}
    for token in tokens:
        if token.is_sign:
            if token.text == "=":
                raise ValueError("expected the name of an option before '='")
            _end(tokens)
            return JaasEntry(module=module, options=options)
        _expect_equals(tokens)
        if token.text in options:
            raise ValueError(f"the option {token.text} is given twice")
        options[token.text] = _word(tokens, f"the value of {token.text}")
    raise ValueError("expected ';' at the end")


def _tokens(text: str) -> Iterator[_Token]:
    text = text.strip()
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError("a quote that is never closed")
        position = match.end()
        double, single, word, sign = match.groups()
        quoted = double if double is not None else single
        if sign is not None:
            yield _Token(sign, True)
        else:
            yield _Token(re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else word, False)


def _word(tokens: Iterator[_Token], what: str) -> str:
    token = next(tokens, None)
    if token is None or token.is_sign:
        raise ValueError(f"expected {what}")
    return token.text


def _expect_equals(tokens: Iterator[_Token]) -> None:
    token = next(tokens, None)
    if token is None or not token.is_sign or token.text != "=":
        raise ValueError("expected options as name=\"value\", and ';' at the end")


def _end(tokens: Iterator[_Token]) -> None:
    if next(tokens, None) is not None:
        raise ValueError("expected one login module, found more")
