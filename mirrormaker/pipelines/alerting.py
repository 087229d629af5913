"""Telling people: a program that reads what happened from its standard input, and a URL it is posted to."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import Any

from aiohttp import ClientError, ClientSession

from broker.telemetry import logger
from mirrormaker.topology.model import AlertOccasion, AlertSpec, PipelineSpec

TIMEOUT_SECONDS = 30.0

_log = logger("pipelines")


def command_problem(spec: AlertSpec) -> str | None:
    """Why its program cannot be started here; None where it can be, or there is none."""
    if not spec.command or shutil.which(spec.command[0]) is not None:
        return None
    return f"{spec.command[0]!r} is no program that can be started here"


async def alert(pipeline: PipelineSpec, occasion: AlertOccasion, told: dict[str, Any]) -> None:
    """Tell everybody whom the pipeline names; who cannot be told is logged."""
    message = {"pipeline": pipeline.name, "owner": pipeline.owner, "occasion": occasion.value, **told}
    _log.warning("pipeline_alert", **message)
    spec = pipeline.alert
    if occasion not in spec.on:
        return
    body = json.dumps(message).encode()
    for name, tell in (("command", _run), ("webhook", _post)):
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await tell(spec, body)
        except (OSError, ClientError, ValueError) as error:
            told_of = str(error) or f"not within {TIMEOUT_SECONDS:g} s"
            _log.error("pipeline_alert_not_told", pipeline=pipeline.name, way=name, error=told_of)


async def _run(spec: AlertSpec, body: bytes) -> None:
    if not spec.command:
        return
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*spec.command, stdin=pipe)
    try:
        await process.communicate(body)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise OSError(f"{spec.command[0]} ended with {process.returncode}")


async def _post(spec: AlertSpec, body: bytes) -> None:
    if spec.webhook is not None:
        headers = {"Content-Type": "application/json"}
        async with (
            ClientSession(headers=headers, raise_for_status=True, trust_env=True) as session,
            session.post(spec.webhook, data=body),
        ):
            return
