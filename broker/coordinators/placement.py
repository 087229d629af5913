"""Which partition of a coordinator's topic a key lives on, as Kafka has it. Pure."""

from __future__ import annotations


def partition_of(key: str, partition_count: int) -> int:
    """The partition that a group or a transactional id lives on: Java's `String.hashCode` without its sign,
    modulo the count.
    """
    value = java_hash(key)
    magnitude = (
        0 if value == -(1 << 31) else abs(value)
    )  # as Java, where abs of the least int would be negative
    return magnitude % partition_count


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, a signed 32-bit number."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
