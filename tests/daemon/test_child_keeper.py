"""Children that end by themselves are started again: when, how often, and what is told of it."""

from __future__ import annotations

from structlog.testing import capture_logs

from broker.errors import ConfigurationError
from mirrormaker.child_keeper import GOOD_RUN_MS, RESTART_BACKOFF, ChildKeeper
from tests.storage.samples import ManualClock

NODE, OTHER = "jfk node 1", "jfk node 2"


class Scene:
    """Children without processes, and a keeper whose waits do not vary."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.dead: set[str] = set()
        self.restarted: list[str] = []
        self.refuses = False
        self.keeper = ChildKeeper(self, self.clock, random=lambda: 0.5)

    def ended(self) -> dict[str, str]:
        return dict.fromkeys(self.dead, "its last words")

    def restart(self, name: str) -> None:
        if self.refuses:
            raise ConfigurationError(["the port is taken"])
        self.dead.discard(name)
        self.restarted.append(name)

    def wait(self, by_ms: float) -> None:
        self.clock.advance(round(by_ms))
        self.keeper.look()

    def wait_until_restarted(self) -> int:
        """How long a child that ended just now stays dead, to 100 ms."""
        before, waited = len(self.restarted), 0
        self.keeper.look()
        while len(self.restarted) == before:
            self.wait(100)
            waited += 100
        return waited


def test_a_child_that_ended_is_started_again_after_a_wait_and_told_once() -> None:
    scene = Scene()
    scene.dead = {NODE}
    with capture_logs() as logs:
        scene.keeper.look()
        scene.keeper.look()
        assert scene.restarted == []
        scene.wait(RESTART_BACKOFF.initial_ms)
    assert scene.restarted == [NODE]
    assert [event["event"] for event in logs] == ["child_ended", "child_restarted"]
    assert (logs[0]["child"], logs[0]["log"]) == (NODE, "its last words")


def test_waits_grow_up_to_a_bound_and_begin_anew_after_a_good_run() -> None:
    scene = Scene()
    waits = []
    for _ in range(10):
        scene.dead = {NODE}
        waits.append(scene.wait_until_restarted())
    assert waits == sorted(waits)
    assert waits[0] == RESTART_BACKOFF.initial_ms
    assert waits[-1] == RESTART_BACKOFF.max_ms
    scene.wait(GOOD_RUN_MS + 1)
    scene.dead = {NODE}
    assert scene.wait_until_restarted() == waits[0]


def test_a_start_that_fails_is_told_and_tried_again_and_others_do_not_wait_for_it() -> None:
    scene = Scene()
    scene.dead, scene.refuses = {NODE}, True
    with capture_logs() as logs:
        scene.keeper.look()
        scene.wait(RESTART_BACKOFF.initial_ms)
        scene.dead.add(OTHER)
        scene.refuses = False
        scene.keeper.look()
        scene.wait(RESTART_BACKOFF.initial_ms)
        assert scene.restarted == [OTHER]
        scene.wait(RESTART_BACKOFF.initial_ms)
        assert scene.restarted == [OTHER, NODE]
    (told,) = (event for event in logs if event["event"] == "child_not_restarted")
    assert told["reason"] == "the port is taken"
