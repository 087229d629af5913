"""Logs are one form, whoever writes them."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import logging
from broker.telemetry import configure_logging, logger
configure_logging()
logger("own").warning("segment_rolled", bytes=5)
try:
    int("x")
except ValueError:
    logging.getLogger("aiohttp.server").exception("Error handling request from %s", "127.0.0.1")
logging.getLogger("kazoo").info("of no interest")
"""


def test_what_packages_log_is_an_object_a_line_as_everything_else() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    own, foreign = map(json.loads, done.stderr.splitlines())
    assert (own["component"], own["event"], own["bytes"]) == ("own", "segment_rolled", 5)
    assert (foreign["component"], foreign["level"]) == ("aiohttp.server", "error")
    assert foreign["event"] == "Error handling request from 127.0.0.1"
    assert foreign["exception"].endswith("ValueError: invalid literal for int() with base 10: 'x'")
    assert "timestamp" in foreign
