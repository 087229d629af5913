"""A note of a producer id under which a mirror writes copies, made before the first of them is sent. Pure.

It tells copies that no page knows of from records that somebody else wrote. Notes outlive the copies: none is
ever removed.
    key    {"cluster": of the source, "producer": ID}
    value  {"since_ms": when it was made}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from mirrormaker.flow.kept_view import Document


class ProducerNote(NamedTuple):
    """Of copies from which cluster, and which producer."""

    cluster: str | None
    producer_id: int

    def record(self, since_ms: int) -> tuple[Document, Document]:
        """Key and value."""
        return {"cluster": self.cluster, "producer": self.producer_id}, {"since_ms": since_ms}

    @classmethod
    def of(cls, key: Mapping[str, Any]) -> ProducerNote:
        """Out of the key of a record. Raises ValueError."""
        cluster, producer_id = key.get("cluster"), key["producer"]
        if type(producer_id) is not int or not (cluster is None or isinstance(cluster, str)):
            raise ValueError("a key that names no producer")
        return cls(cluster, producer_id)


def is_producer_note(key: Mapping[str, Any]) -> bool:
    """Whether a record of the ledger with this key is such a note."""
    return "producer" in key
