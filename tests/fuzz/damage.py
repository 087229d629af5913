"""Bytes that are not quite what they were."""

from __future__ import annotations

from random import Random


def damaged(data: bytes, random: Random) -> bytes:
    """A copy with a few bytes changed, a stretch doubled or dropped, or its end cut off."""
    damaged = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(damaged) + 1)
        length = random.choice((1, 4, 30))
        match random.randrange(4):
            case 0:
                damaged[at : at + 1] = bytes((random.choice((0, 1, 127, 128, 255)),))
            case 1:
                damaged[at:at] = damaged[at : at + length]
            case 2:
                del damaged[at : at + length]
            case _:
                damaged[at : at + length] = random.randbytes(length)
    return bytes(damaged[: random.choice((len(damaged), len(damaged), random.randrange(len(damaged) + 1)))])
