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


def test_the_go_clients_own_tests_pass(franz_go_tests: Tool) -> None:
    """Those that need a broker, but for transactions and the groups of KIP-848."""
    wanted = ("Ping", "Hook", "ProcessHooks", "Issue", "Consume", "Direct", "Add", "Pause", "Pool", "Group")
    report = franz_go_tests("-test.v", "-test.run", "|".join(f"^Test{name}" for name in wanted))
    for test in ("TestGroupETL/cooperative-sticky/static", "TestGroupETL/range", "TestGroupSimple/classic"):
        assert f"--- PASS: {test} " in report
