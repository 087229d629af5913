"""What the daemon's HTTP port answers; the daemon itself does not run, nor do its clusters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, TCPConnector

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
        ("GET", "/status?route=forth", "'route': none is known"),
        ("GET", "/failover-groups/ord?target=home", "'target': known are to"),
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


def test_of_several_values_for_one_none_is_picked(daemon: Daemon) -> None:
    async def play(ask: Ask) -> None:
        answer = await ask("POST", "/routes/forth/resume?partition=0&partition=1&topic=t&topic=t")
        assert (answer.status, answer.problems) == (400, ["partition: given 2 times"])

    asked(daemon, play)
