"""What options of the command line hold, as types for argparse."""

from __future__ import annotations

import argparse

from broker.types import HostPort

LOG_LEVELS = ("debug", "info", "warning", "error")


def addresses(text: str) -> list[HostPort]:
    """`HOST:PORT[,HOST:PORT]`. Raises ArgumentTypeError, as all here."""
    return [address(part) for part in text.split(",")]


def address(text: str) -> HostPort:
    """`HOST:PORT`."""
    try:
        return HostPort.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def assignment(text: str) -> tuple[str, str]:
    """`KEY=VALUE`; the value may be empty."""
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return name, value


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)
