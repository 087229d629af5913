"""The coordination port's promises, kept by the tree in memory and by a real ZooKeeper alike."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker.coordination.protocol import (
    BadVersionError,
    CheckVersion,
    CreateNode,
    DeleteNode,
    NodeExistsError,
    NoNodeError,
    SessionKey,
    SessionLostError,
    SessionState,
    SetData,
)
from broker.errors import CoordinationError
from tests.coordination.ensembles import Ensemble, Told, closing

MakeEnsemble = Callable[[], Ensemble]


def run(make_ensemble: MakeEnsemble, scenario: Callable[[Ensemble], Awaitable[None]]) -> None:
    async def body() -> None:
        async with closing(make_ensemble()) as ensemble:
            await scenario(ensemble)

    asyncio.run(body())


def test_a_created_znode_is_read_back_with_its_version_and_creation(make_ensemble: MakeEnsemble) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        session = await ensemble.session()
        assert await session.create("/a/b/c", b"data") == "/a/b/c"
        first = await session.get("/a/b/c")
        await session.create("/a/b/d", b"")
        second = await session.get("/a/b/d")
        assert first is not None
        assert second is not None
        assert (first.data, first.version, first.ephemeral_owner) == (b"data", 0, 0)
        assert first.mzxid == first.czxid < second.czxid
        await session.set("/a/b/c", b"more")
        written = await session.get("/a/b/c")
        assert written is not None
        assert (written.czxid, written.version) == (first.czxid, 1)
        assert written.mzxid > second.mzxid
        assert await session.children("/a/b") == ["c", "d"]
        assert await session.get("/nowhere") is None
        assert await session.children("/nowhere") == []

    run(make_ensemble, scenario)


def test_many_znodes_are_read_at_once_each_as_if_alone(make_ensemble: MakeEnsemble) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        session = await ensemble.session()
        await session.create("/a/b", b"data")
        await session.create("/a/c", b"", ephemeral=True)
        await session.set("/a/b", b"more \x00 data" * 100)
        paths = ["/a/b", "/nowhere", "/a/c", "/a/b/below", "/a", "/"] * 50
        assert await session.get_all(paths) == [await session.get(path) for path in paths]
        assert await session.get_all([]) == []

    run(make_ensemble, scenario)


def test_creating_what_exists_is_refused_and_names_the_path(make_ensemble: MakeEnsemble) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        session = await ensemble.session()
        await session.create("/a", b"1")
        with pytest.raises(NodeExistsError, match="/a"):
            await session.create("/a", b"2")
        znode = await session.get("/a")
        assert znode is not None
        assert znode.data == b"1"

    run(make_ensemble, scenario)


def test_a_conditional_write_is_refused_after_another_write(make_ensemble: MakeEnsemble) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        session, other = await ensemble.session(), await ensemble.session()
        await session.create("/a", b"0")
        assert await other.set("/a", b"1", version=0) == 1
        with pytest.raises(BadVersionError, match="/a"):
            await session.set("/a", b"2", version=0)
        with pytest.raises(BadVersionError, match="/a"):
            await session.delete("/a", version=0)
        assert await session.set("/a", b"3") == 2
        with pytest.raises(NoNodeError, match="/gone"):
            await session.set("/gone", b"")

    run(make_ensemble, scenario)


def test_sequential_znodes_are_numbered_in_order(make_ensemble: MakeEnsemble) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        session = await ensemble.session()
        paths = [await session.create("/queue/n_", b"", sequence=True) for _ in range(3)]
        assert paths == sorted(paths)
        assert len(set(paths)) == 3
        assert all(len(path.removeprefix("/queue/n_")) == 10 for path in paths)

    run(make_ensemble, scenario)


def test_deleting_is_idempotent_and_takes_a_subtree_only_when_asked(make_ensemble: MakeEnsemble) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        session = await ensemble.session()
        await session.create("/a/b/c", b"")
        with pytest.raises(CoordinationError, match="/a"):
            await session.delete("/a")
        await session.delete("/a", recursive=True)
        await session.delete("/a")
        assert await session.get("/a") is None

    run(make_ensemble, scenario)


def test_ephemeral_znodes_carry_their_session_and_go_with_it(make_ensemble: MakeEnsemble) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        session, other = await ensemble.session(), await ensemble.session()
        await session.create("/ids/1", b"", ephemeral=True)
        znode = await other.get("/ids/1")
        assert znode is not None
        assert znode.ephemeral_owner == session.session_id != other.session_id
        with pytest.raises(CoordinationError, match="ephemeral"):
            await other.create("/ids/1/child", b"")
        await session.close()
        assert await other.get("/ids/1") is None

    run(make_ensemble, scenario)


def test_a_multi_happens_wholly_or_not_at_all(make_ensemble: MakeEnsemble) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        session = await ensemble.session()
        await session.create("/epoch", b"1")
        await session.create("/state", b"old")
        done = await session.multi(
            [
                CheckVersion(path="/epoch", version=0),
                SetData(path="/state", data=b"new", version=0),
                CreateNode(path="/made", data=b"x"),
            ]
        )
        assert done == [-1, 1, 0]
        with pytest.raises(BadVersionError, match="/epoch"):
            await session.multi(
                [
                    SetData(path="/state", data=b"newer"),
                    DeleteNode(path="/made"),
                    CheckVersion(path="/epoch", version=7),
                ]
            )
        state = await session.get("/state")
        assert state is not None
        assert (state.data, state.version) == (b"new", 1)
        assert await session.get("/made") is not None
        with pytest.raises(NodeExistsError, match="/made"):
            await session.multi([SetData(path="/state", data=b""), CreateNode(path="/made", data=b"")])
        with pytest.raises(NoNodeError, match="/none"):
            await session.multi([DeleteNode(path="/none")])
        assert await session.multi([]) == []

    run(make_ensemble, scenario)


def test_a_data_watch_is_told_of_every_change_until_it_ends(make_ensemble: MakeEnsemble) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        session, other = await ensemble.session(), await ensemble.session()
        told = Told()
        end = session.watch_data("/a", told)
        assert await session.get("/a") is None
        seen = 0
        for change in (
            other.create("/a", b"0"),
            other.set("/a", b"1"),
            other.set("/a", b"2"),
            other.delete("/a"),
            other.create("/a", b"3"),
        ):
            await change
            seen = await told.more_than(seen)
            await session.get("/a")
        end()
        end()
        await other.set("/a", b"4")
        await session.set("/a", b"5")
        assert told.count == seen

    run(make_ensemble, scenario)


def test_a_read_after_a_watch_was_told_sees_the_change(make_ensemble: MakeEnsemble) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        session, other = await ensemble.session(), await ensemble.session()
        await session.create("/a", b"0")
        told = Told()
        session.watch_data("/a", told)
        await session.get("/a")
        last = 50
        writes = asyncio.gather(*(other.set("/a", b"%d" % number) for number in range(1, last + 1)))
        value, seen = 0, 0
        while value < last:
            seen = await told.more_than(seen)
            znode = await session.get("/a")
            assert znode is not None
            value = int(znode.data)
        await writes

    run(make_ensemble, scenario)


def test_a_children_watch_is_told_also_when_the_parent_comes_and_goes(make_ensemble: MakeEnsemble) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        session, other = await ensemble.session(), await ensemble.session()
        told = Told()
        session.watch_children("/ids", told)
        await session.get("/ids")
        seen = 0
        for change in (
            other.create("/ids/1", b""),
            other.create("/ids/2", b""),
            other.delete("/ids/1"),
            other.delete("/ids", recursive=True),
            other.create("/ids/3", b""),
        ):
            await change
            expected = await other.children("/ids")
            heard = told.count
            while heard == seen or await session.children("/ids") != expected:
                await told.more_than(heard)
                heard = told.count  # what is read after it was told
            seen = heard

    run(make_ensemble, scenario)


def test_several_handlers_of_one_path_are_all_told(make_ensemble: MakeEnsemble) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        session = await ensemble.session()
        first, second, children = Told(), Told(), Told()
        end = session.watch_data("/a", first)
        session.watch_data("/a", second)
        session.watch_children("/a", children)
        await session.create("/a", b"")
        await first.until(lambda: first.count >= 1)
        await second.until(lambda: second.count >= 1)
        end()
        await session.set("/a", b"1")
        await second.until(lambda: second.count >= 2)
        await session.create("/a/child", b"")
        await children.until(lambda: children.count >= 2)
        assert first.count == 1

    run(make_ensemble, scenario)


def test_a_cut_connection_fails_operations_and_comes_back_with_its_session(
    make_ensemble: MakeEnsemble,
) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        session, other = await ensemble.session(), await ensemble.session()
        states, told = Told(), Told()
        session.on_state(states)
        session.watch_data("/a", told)
        await session.create("/mine", b"", ephemeral=True)
        session_id = session.session_id
        await ensemble.cut(session)
        await states.until(lambda: states.values == [SessionState.SUSPENDED])
        with pytest.raises(SessionLostError):
            await session.get("/a")
        await other.create("/a", b"while away")
        assert told.count == 0
        await ensemble.heal(session)
        await states.until(lambda: states.values == [SessionState.SUSPENDED, SessionState.CONNECTED])
        await told.until(lambda: told.count == 1)
        znode = await session.get("/a")
        assert znode is not None
        assert znode.data == b"while away"
        assert session.session_id == session_id
        assert await session.get("/mine") is not None
        await other.set("/a", b"watched again")
        await told.until(lambda: told.count == 2)

    run(make_ensemble, scenario)


def test_operations_pending_when_the_connection_goes_end_at_once(make_ensemble: MakeEnsemble) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        session = await ensemble.session()
        pending = [asyncio.ensure_future(session.create(f"/n/{n}", b"")) for n in range(20)]
        await asyncio.sleep(0)
        await ensemble.cut(session)
        async with asyncio.timeout(10):
            results = await asyncio.gather(*pending, return_exceptions=True)
        assert all(isinstance(result, str | SessionLostError) for result in results)
        await ensemble.heal(session)

    run(make_ensemble, scenario)


def test_whoever_does_not_listen_any_more_is_told_nothing(make_ensemble: MakeEnsemble) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        session = await ensemble.session()
        states, former = Told(), Told()
        end = session.on_state(former)
        session.on_state(states)
        end()
        await ensemble.cut(session)
        await states.until(lambda: states.values == [SessionState.SUSPENDED])
        assert former.values == []
        await ensemble.heal(session)

    run(make_ensemble, scenario)


def test_a_child_that_is_made_anew_at_once_is_told_to_those_who_watch(make_ensemble: MakeEnsemble) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        session, other, told = await ensemble.session(), await ensemble.session(), Told()
        await session.create("/ids/1", b"", ephemeral=True)
        other.watch_children("/ids", told)
        assert await other.children("/ids") == ["1"]
        before = told.count
        await session.multi(
            [DeleteNode(path="/ids/1"), CreateNode(path="/ids/1", data=b"other", ephemeral=True)]
        )
        await told.more_than(before)
        znode = await other.get("/ids/1")
        assert znode is not None
        assert (znode.data, znode.ephemeral_owner) == (b"other", session.session_id)

    run(make_ensemble, scenario)


def test_an_expired_session_is_followed_by_a_new_one(make_ensemble: MakeEnsemble) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        session, other = await ensemble.session(), await ensemble.session()
        states, told = Told(), Told()
        session.on_state(states)
        session.watch_children("/ids", told)
        await session.create("/ids/1", b"", ephemeral=True)
        await told.until(lambda: told.count >= 1)
        before, seen = session.session_id, told.count
        await ensemble.expire(session)
        await states.until(lambda: states.values[-2:] == [SessionState.LOST, SessionState.CONNECTED])
        assert session.session_id not in (0, before)
        await told.more_than(seen)
        assert await session.children("/ids") == []
        await session.create("/ids/1", b"again", ephemeral=True)
        znode = await other.get("/ids/1")
        assert znode is not None
        assert znode.ephemeral_owner == session.session_id

    run(make_ensemble, scenario)


def test_who_has_the_key_of_a_session_ends_it(make_ensemble: MakeEnsemble) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        session, other = await ensemble.session(), await ensemble.session()
        states = Told()
        session.on_state(states)
        await session.create("/ids/1", b"", ephemeral=True)
        key = session.session_key
        assert key is not None
        assert key.session_id == session.session_id
        assert await other.end_session(key, timeout_ms=10_000)
        assert await other.children("/ids") == []
        assert not await other.end_session(key, timeout_ms=10_000)
        await states.until(lambda: states.values[-2:] == [SessionState.LOST, SessionState.CONNECTED])
        assert session.session_key not in (None, key)

    run(make_ensemble, scenario)


def test_a_session_is_not_ended_without_its_password(make_ensemble: MakeEnsemble) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        session, other = await ensemble.session(), await ensemble.session()
        await session.create("/ids/1", b"", ephemeral=True)
        wrong = SessionKey(session_id=session.session_id, password=b"x" * 16)
        assert not await other.end_session(wrong, timeout_ms=10_000)
        znode = await other.get("/ids/1")
        assert znode is not None
        assert znode.ephemeral_owner == session.session_id == wrong.session_id

    run(make_ensemble, scenario)


def test_a_closed_session_has_no_key(make_ensemble: MakeEnsemble) -> None:
    async def scenario(ensemble: Ensemble) -> None:
        session, other = await ensemble.session(), await ensemble.session()
        key = session.session_key
        assert key is not None
        assert "password" not in repr(key)
        await session.close()
        assert session.session_key is None
        assert not await other.end_session(key, timeout_ms=10_000)

    run(make_ensemble, scenario)
