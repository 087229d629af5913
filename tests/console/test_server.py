"""What the daemon's HTTP port answers; the daemon itself does not run, nor do its clusters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, TCPConnector
from structlog.testing import capture_logs

from broker.types import HostPort
from mirrormaker.console.server import serving
from mirrormaker.daemon import Daemon

TOPOLOGY = """\
clusters:
  a: {bootstrap: ["127.0.0.1:1"]}
  b: {bootstrap: ["127.0.0.1:2"]}
routes:
  - {name: forth, from: a, to: b, failover_group: ord, topics: {include: [t], name: "{topic}"}}
  - {name: back, from: b, to: a, failover_group: ord, enabled: false, topics: {include: [t], name: "{topic}"}}
"""


class Asked:
    """An answer."""

    def __init__(self, status: int, text: str, headers: dict[str, str]) -> None:
        self.status = status
        self.text = text
        self.headers = headers

    @property
    def problems(self) -> list[str]:
        told: dict[str, Any] = json.loads(self.text)
        return list(told["problems"])


Ask = Callable[..., Awaitable[Asked]]


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    file = tmp_path / "t.yaml"
    file.write_text(f"{TOPOLOGY}data_dir: {tmp_path / 'data'}\n")
    return Daemon(file)


def asked(daemon: Daemon, play: Callable[[Ask], Awaitable[None]], token: str | None = None) -> None:
    async def run() -> None:
        async with (
            serving(daemon, HostPort("127.0.0.1", 0), token) as address,
            ClientSession(f"http://{address}", connector=TCPConnector(force_close=True)) as session,
        ):

            async def ask(method: str, path: str, **options: Any) -> Asked:
                async with session.request(method, path, **options) as answer:
                    return Asked(answer.status, await answer.text(), dict(answer.headers))

            await play(ask)

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize(
    ("method", "path", "problem"),
    [
        ("GET", "/status?routes=forth", "'routes': known are route, topic"),
        ("GET", "/failover-groups/ord?target=home", "'target': known are force, tail, to"),
        ("POST", "/failover-groups/ord/failover?to=home", "'to': known are force, tail, timeout"),
        ("POST", "/failover-groups/ord/failback?dry-run=true", "'dry-run': known are force, tail, timeout"),
        ("POST", "/routes/forth/pause?topic=t&partition=0", "'partition': known are reason, topic"),
        ("POST", "/routes/forth/resume?topics=t", "'topics': known are partition, topic"),
        ("POST", "/routes/forth/seek?to=latest&topik=t", "'topik': known are partition, to, topic"),
        ("POST", "/reload?dry-run", "'dry-run': none is known"),
        ("POST", "/topology?dry-run", "'dry-run': none is known"),
    ],
)
def test_a_parameter_that_a_request_does_not_have_is_refused(
    daemon: Daemon, method: str, path: str, problem: str
) -> None:
    async def play(ask: Ask) -> None:
        answer = await ask(method, path)
        assert (answer.status, answer.problems) == (400, [f"there is no parameter {problem}"])

    asked(daemon, play)


@pytest.mark.parametrize("path", ["/health", "/health/ready", "/metrics"])
def test_monitors_may_ask_with_parameters_of_their_own(daemon: Daemon, path: str) -> None:
    async def play(ask: Ask) -> None:
        assert (await ask("GET", path + "?verbose=1")).status == (await ask("GET", path)).status != 400

    asked(daemon, play)


def test_of_several_values_for_one_none_is_picked(daemon: Daemon) -> None:
    async def play(ask: Ask) -> None:
        answer = await ask("POST", "/routes/forth/resume?partition=0&partition=1&topic=t&topic=t")
        assert (answer.status, answer.problems) == (400, ["partition: given 2 times"])

    asked(daemon, play)


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", f"/routes/forth/seek?to={'9' * 4400}", {}, 400),
        ("POST", "/routes/forth/seek?to=1969-12-31T23:59:59.999Z", {}, 400),
        ("POST", "/routes/nope/pause", {}, 404),
        ("GET", "/failover-groups/nope", {}, 404),
        ("POST", "/failover-groups/no%0Ape/failover", {}, 404),
        ("POST", "/reload", {"Origin": "http://["}, 403),
        ("GET", "/nope", {}, 404),
    ],
)
def test_what_cannot_be_asked_for_is_an_error_in_the_one_form(
    daemon: Daemon, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    async def play(ask: Ask) -> None:
        answer = await ask(method, path, headers=headers)
        assert answer.status == status
        assert len(answer.problems) == 1
        assert len(answer.text) < 200

    asked(daemon, play)


@pytest.mark.parametrize("number", ["", "-1", "x", "9" * 4400])
def test_a_partition_is_a_number(daemon: Daemon, number: str) -> None:
    async def play(ask: Ask) -> None:
        for path in ("resume?", "seek?to=latest&"):
            answer = await ask("POST", f"/routes/forth/{path}partition={number}")
            assert answer.status == 400
            assert answer.problems == [f"partition: {number[:50]!r} is not the number of one"]

    asked(daemon, play)


@pytest.mark.parametrize("timeout", ["", "nan", "inf", "1e308", "0", "-1", "soon", "9" * 4400])
def test_the_time_for_a_switch_is_a_number_of_seconds(daemon: Daemon, timeout: str) -> None:
    async def play(ask: Ask) -> None:
        answer = await ask("POST", f"/failover-groups/ord/failover?timeout={timeout}")
        problem = f"timeout: {timeout[:50]!r} is not a number of seconds, at most 604800"
        assert (answer.status, answer.problems) == (400, [problem])

    asked(daemon, play)


def test_a_body_that_is_not_what_it_says_is_refused(daemon: Daemon) -> None:
    async def play(ask: Ask) -> None:
        for data, headers in ((b"\xff", {}), (b"not packed", {"Content-Encoding": "gzip"})):
            answer = await ask("POST", "/topology", data=data, headers=headers)
            assert answer.status == 400
            assert answer.problems[0].startswith("the body ")

    asked(daemon, play)


def test_refusals_say_what_would_be_served(daemon: Daemon) -> None:
    async def play(ask: Ask) -> None:
        answer = await ask("GET", "/reload")
        assert (answer.status, answer.headers["Allow"]) == (405, "POST")
        answer = await ask("POST", "/reload")
        assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
        for each in (answer, await ask("GET", "/nope")):
            assert each.headers["Content-Type"].startswith("application/json")

    asked(daemon, play, token="a-token")


@pytest.mark.parametrize(
    ("condition", "status"), [("*", 400), ('"{}"', 400), ('W/"{}"', 412), ('"other"', 412)]
)
def test_a_topology_is_replaced_on_a_condition(daemon: Daemon, condition: str, status: int) -> None:
    """400: there the condition holds, and the daemon does not run."""

    async def play(ask: Ask) -> None:
        tag = condition.format(daemon.live.loaded.source.digest)
        answer = await ask(
            "POST", "/topology", headers={"If-Match": tag}, data=daemon.live.loaded.source.text
        )
        assert answer.status == status

    asked(daemon, play)


def test_a_request_that_fails_is_logged_and_answered(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Daemon) -> dict[str, Any]:
        raise ZeroDivisionError("a secret")

    async def play(ask: Ask) -> None:
        monkeypatch.setattr(Daemon, "describe", fail)
        with capture_logs() as logs:
            answer = await ask("GET", "/metrics")
        assert (answer.status, answer.problems) == (500, ["ZeroDivisionError: see the daemon's log"])
        assert [entry["event"] for entry in logs] == ["request_failed"]

    asked(daemon, play)
