"""Structured logs: snake_case past-tense events with fixed keys on stderr, JSON unless it is a terminal."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import FilteringBoundLogger


def configure_logging(level: str = "info", stream: TextIO | None = None) -> None:
    """Set up this process's logs once, before anything logs; `level` is a name as in the standard library."""
    output = stream or sys.stderr
    renderer = structlog.dev.ConsoleRenderer() if output.isatty() else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=output),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(stream=output, level=logging.WARNING, format="%(message)s", force=True)


def logger(name: str) -> FilteringBoundLogger:
    """A logger whose events carry `component=name`."""
    bound: FilteringBoundLogger = structlog.get_logger(component=name)
    return bound
