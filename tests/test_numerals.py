"""What people write where a number is due."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest

from broker.listener_config import address_limit
from broker.option_types import positive
from broker.types import HostPort
from mirrormaker.seeking import parse_destination


@pytest.mark.parametrize(
    ("parse", "text", "told"),
    [
        (parse_destination, "²", "is not earliest, latest, an offset, or a time"),
        (HostPort.parse, "node:9²", "is not host:port"),
        (address_limit, "10.0.0.1:²", "expected ADDRESS:COUNT"),
        (positive, "²", "is no number from 1 on"),
    ],
)
def test_a_character_that_only_looks_like_a_digit_is_refused_in_the_words_of_what_is_due(
    parse: Callable[[str], object], text: str, told: str
) -> None:
    with pytest.raises((ValueError, argparse.ArgumentTypeError), match=told):
        parse(text)
