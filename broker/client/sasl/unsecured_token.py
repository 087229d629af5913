"""Tokens that nobody signed (RFC 7515, `alg` none): what Apache Kafka's own login module makes for trials.

Anyone can make one, so only clusters that guard nothing accept them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

ClaimValue = str | float | list[str]


def unsecured_token(claims: Mapping[str, ClaimValue], *, issued_ms: int, lifetime_ms: int) -> str:
    """A token with `claims`, and when it was issued and expires where they do not say so."""
    times = {"iat": issued_ms / 1000, "exp": (issued_ms + lifetime_ms) / 1000}
    return f"{_encoded({'alg': 'none'})}.{_encoded({**times, **claims})}."


def _encoded(document: Mapping[str, object]) -> str:
    compact = json.dumps(document, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(compact).rstrip(b"=").decode()
