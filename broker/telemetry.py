"""Structured logs: snake_case past-tense events with fixed keys on stderr, JSON unless it is a terminal."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, FilteringBoundLogger, Processor


def configure_logging(level: str = "info", stream: TextIO | None = None) -> None:
    """Set up this process's logs once, before anything logs; `level` is a name as in the standard library."""
    output = stream or sys.stderr
    renderer = structlog.dev.ConsoleRenderer() if output.isatty() else structlog.processors.JSONRenderer()
    processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=output),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=[_name_component, *processors],
            processors=[ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


def _name_component(_: object, __: str, event: EventDict) -> EventDict:
    """What packages log is told of in the same form: their logger is the component."""
    event["component"] = event["_record"].name
    return event


def logger(name: str) -> FilteringBoundLogger:
    """A logger whose events carry `component=name`."""
    bound: FilteringBoundLogger = structlog.get_logger(component=name)
    return bound
