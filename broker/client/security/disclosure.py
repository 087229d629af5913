"""Reading texts from where they stand. Blocks, as files do."""

from __future__ import annotations

import os

from broker.client.security.text_source import Place, TextSource
from broker.errors import ConfigurationError

_BYTES_MAX = 1 << 20


def disclose(source: TextSource) -> str:
    """The text, without the line break that ends a file.

    Raises ConfigurationError that names option and place.
    """
    match source.place:
        case Place.INLINE:
            return source.given
        case Place.ENVIRONMENT:
            return _of_variable(source)
        case Place.FILE:
            return _of_file(source)


def disclose_filled(source: TextSource) -> str:
    """As `disclose`; a file or a variable that holds nothing is told as well."""
    text = disclose(source)
    if text:
        return text
    match source.place:
        case Place.INLINE:
            return text
        case Place.ENVIRONMENT:
            problem = f"the variable {source.given} of the environment is empty"
        case Place.FILE:
            problem = f"{source.given} is empty"
    raise ConfigurationError([f"{source.option}: {problem}"])


def _of_variable(source: TextSource) -> str:
    text = os.environ.get(source.given)
    if text is None:
        raise ConfigurationError([f"{source.option}: the environment has no variable {source.given}"])
    return text


def _of_file(source: TextSource) -> str:
    try:
        with open(source.given, "rb") as file:
            content = file.read(_BYTES_MAX + 1)
    except OSError as error:
        problem = f"{source.option}: {source.given} cannot be read: {error.strerror or error}"
        raise ConfigurationError([problem]) from error
    if len(content) > _BYTES_MAX:
        raise ConfigurationError([f"{source.option}: {source.given} is larger than {_BYTES_MAX} bytes"])
    try:
        return content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ConfigurationError([f"{source.option}: {source.given} is not text in UTF-8"]) from None
