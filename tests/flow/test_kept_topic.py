"""Topics that the mirror keeps, on our nodes, and what a cluster that refuses them is told of."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from broker.client.admin import Admin
from broker.client.backoff import Backoff
from broker.client.cluster import Cluster
from broker.client.identity_source import IdempotentIdentity
from broker.client.metadata import ClusterMetadata
from broker.client.producer_identity import ProducerIdentity
from broker.client.topic_admin import NewTopic, TopicAdmin
from broker.errors import ErrorCode, ProtocolError, RequestTimedOutError
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.kept_view import KeptView, decode_document, encode_document
from tests.client.running import until
from tests.conftest import ClusterFactory
from tests.flow.kept_topic_cases import (  # noqa: F401 collected here too
    NAME,
    run,
    test_a_kept_topic_is_made_compacted_and_says_what_was_put,
    test_a_topic_that_is_deleted_or_made_anew_by_others_is_read_anew,
    test_a_topic_that_retention_would_empty_is_refused,
    test_of_several_writers_the_last_one_wins_for_all_readers,
    test_what_a_transaction_wrote_is_seen_when_it_is_committed,
    test_what_is_no_json_object_is_passed_over,
)

DOCUMENTS = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.none(), max_size=3)


@given(puts=st.lists(st.tuples(DOCUMENTS, st.none() | DOCUMENTS)))
def test_a_view_knows_the_last_value_of_each_key(puts: list[tuple[dict, dict | None]]) -> None:  # type: ignore[type-arg]
    view, expected = KeptView(), {}
    for key, value in puts:
        view.apply(encode_document(key), None if value is None else encode_document(value))
        expected[encode_document(key)] = value
    kept = {encode_document(key): value for key, value in view.entries()}
    assert kept == {key: value for key, value in expected.items() if value is not None}
    assert all(view.get(decode_document(key)) == value for key, value in expected.items())


def test_a_key_is_known_in_whatever_form_others_wrote_it() -> None:
    view = KeptView()
    view.apply(b'{"b": 1, "a": 2}', b'{"x": 1}')
    assert view.get({"a": 2, "b": 1}) == {"x": 1}


def test_half_of_a_surrogate_pair_is_kept_as_json_escapes_it() -> None:
    view = KeptView()
    view.apply(b'{"a": "\\ud83d"}', encode_document({"problem": "é \udc00", "path": "\\udc00"}))
    assert list(view.entries()) == [({"a": "\ud83d"}, {"problem": "é \udc00", "path": "\\udc00"})]
    view.apply(encode_document({"a": "\ud83d"}), None)
    assert len(view) == 0


@pytest.mark.parametrize("key", [None, b"", b"{", b"[]", b"\xff", b"1", b"[" * 100_000])
def test_keys_that_are_no_json_objects_are_refused(key: bytes | None) -> None:
    view = KeptView()
    with pytest.raises(ValueError):  # noqa: PT011 whatever the parser says
        view.apply(key, None)


@pytest.mark.timeout(120)
def test_what_is_on_its_way_to_a_cluster_that_hangs_holds_up_no_end(cluster: ClusterFactory) -> None:
    node = cluster()

    async def main(client: Cluster) -> None:
        async with KeptTopic(client, NAME, timeout_ms=3_600_000) as topic:
            await topic.put([({"number": 1}, {})])
            os.kill(node.pids[1], signal.SIGSTOP)
            put = asyncio.create_task(topic.put([({"number": 2}, {})]))
            await until(lambda: bool(topic._producer._sender.unsettled()))
            put.cancel()

    try:
        run(node, main)
    finally:
        os.kill(node.pids[1], signal.SIGCONT)


@pytest.mark.timeout(120)
def test_a_cluster_that_does_not_say_where_a_topic_ends_is_told_of(cluster: ClusterFactory) -> None:
    node = cluster()

    async def main(client: Cluster) -> None:
        async with KeptTopic(client, NAME, timeout_ms=2_000) as topic:
            await topic.read_to_end()
            os.kill(node.pids[1], signal.SIGSTOP)
            with pytest.raises(RequestTimedOutError, match="within 2000 ms: its cluster does not say where"):
                await topic.read_to_end()

    try:
        run(node, main)
    finally:
        os.kill(node.pids[1], signal.SIGCONT)


def test_a_topic_in_which_nothing_happens_is_seldom_asked_for_and_what_comes_is_there_at_once(
    cluster: ClusterFactory,
) -> None:
    async def main(client: Cluster) -> None:
        now = asyncio.get_running_loop().time
        async with KeptTopic(client, NAME) as topic:
            await topic.read_to_end()
            reads, began = topic.reads, now()
            await until(lambda: topic.reads >= reads + 3)
            assert now() - began > 3
            await topic.put([({"number": 1}, {"x": 1})])
            written = now()
            await until(lambda: topic.get({"number": 1}) == {"x": 1})
            assert now() - written < 1

    run(cluster(), main)


@pytest.mark.parametrize("code", [ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_CONFIG])
def test_a_cluster_that_has_a_policy_about_settings_is_left_those_that_do_not_matter(
    cluster: ClusterFactory, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    create = TopicAdmin.create_topic

    async def bound(admin: TopicAdmin, topic: NewTopic, *, validate_only: bool = False) -> None:
        if "segment.bytes" in topic.configs:
            raise ProtocolError(code, "segment.bytes is lower than the minimum allowed value")
        await create(admin, topic, validate_only=validate_only)

    async def main() -> None:
        monkeypatch.setattr(TopicAdmin, "create_topic", bound)
        async with Cluster(cluster().bootstrap) as client:
            async with KeptTopic(client, NAME, configs={"segment.bytes": "16777216"}) as kept:
                await kept.put([({"number": 1}, {})])
            configs = await Admin(client).describe_topic_configs(NAME, ["cleanup.policy"])
            assert configs["cleanup.policy"].value == "compact"

    asyncio.run(main())


def test_a_cluster_that_forbids_it_is_an_error_that_names_the_topic_and_the_rights(
    cluster: ClusterFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(admin: TopicAdmin, topic: NewTopic, *, validate_only: bool = False) -> None:
        raise ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {topic.name}")

    async def main() -> None:
        async with Cluster(cluster().bootstrap, name="aggregate") as client:
            with monkeypatch.context() as patched:
                patched.setattr(TopicAdmin, "create_topic", refuse)
                with pytest.raises(ProtocolError, match=f"right to Create topic {NAME!r} at 'aggregate'"):
                    async with KeptTopic(client, NAME):
                        raise AssertionError("it was made")
            async with KeptTopic(client, NAME) as kept:
                await kept.read_to_end()
                monkeypatch.setattr(client, "refresh", _refused_refresh)
                with pytest.raises(ProtocolError, match=f"right to Describe topic {NAME!r} at 'aggregate'"):
                    await kept.read_to_end()

    async def _refused_refresh(topics: Iterable[str], **_: object) -> ClusterMetadata:
        raise ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ", ".join(topics))

    asyncio.run(main())


def test_a_right_to_producer_ids_that_is_given_back_lets_it_be_written_again(
    cluster: ClusterFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = ProtocolError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "producer id")

    async def refuse(_source: IdempotentIdentity) -> ProducerIdentity:
        raise refused

    async def main() -> None:
        async with Cluster(cluster().bootstrap) as client, KeptTopic(client, NAME) as kept:
            with monkeypatch.context() as patched:
                patched.setattr(IdempotentIdentity, "_ask", refuse)
                puts = [kept.put([({"number": number}, {})]) for number in range(3)]
                for outcome in await asyncio.gather(*puts, return_exceptions=True):
                    assert isinstance(outcome, ProtocolError)
                    assert outcome.code is refused.code
                    assert "the mirror lacks the right to IdempotentWrite" in str(outcome)
                with pytest.raises(ProtocolError, match="CLUSTER_AUTHORIZATION_FAILED"):
                    await kept.put([({"number": 3}, {})])
            await kept.put([({"number": 4}, {})])
            await kept.read_to_end()
            assert list(kept.entries()) == [({"number": 4}, {})]

    asyncio.run(main())


def test_what_stands_in_the_way_of_reading_is_logged_once_until_it_is_another(
    cluster: ClusterFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[ErrorCode] = []
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    async def refuse(_: KeptTopic) -> None:
        refused.append(code)
        raise ProtocolError(code, f"topic {NAME}")

    async def main() -> None:
        nonlocal code
        async with Cluster(cluster().bootstrap) as client, KeptTopic(client, NAME):
            with monkeypatch.context() as patched:
                patched.setattr(client, "backoff", Backoff(initial_ms=1))
                patched.setattr(KeptTopic, "_read_on", refuse)
                await until(lambda: len(refused) > 3)
                code = ErrorCode.LEADER_NOT_AVAILABLE
                await until(lambda: refused.count(code) > 3)

    with capture_logs() as logs:
        asyncio.run(main())
    told = [each["error"] for each in logs if each["event"] == "kept_topic_not_read"]
    assert [each.split(":")[0] for each in told] == ["TOPIC_AUTHORIZATION_FAILED", "LEADER_NOT_AVAILABLE"]
