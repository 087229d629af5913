"""franz-go against our node."""

from __future__ import annotations

import pytest

from tests.interop.conftest import Tool


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_go_client_produces_and_consumes_in_a_group(
    franz_go: Tool, bootstrap: str, topic: str, codec: str
) -> None:
    franz_go("produce", bootstrap, topic, "300", codec)
    consumed = franz_go("consume", bootstrap, topic, "300", f"group-{topic}")
    assert sorted(consumed.splitlines()) == sorted(f"key value {index} {index}" for index in range(300))
