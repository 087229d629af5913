"""What a command of pipelines says on stderr, of which Spark has a share."""

from __future__ import annotations

import re

BROKEN_PIPE_OF_PYSPARK = re.compile(
    r"Traceback \(most recent call last\):\n"
    r"(  File \"[^\"]*/pyspark/daemon\.py\".*\n(    .*\n)*)*"
    r"(BrokenPipeError: .*\n|.*\Z)"
)
"""Its daemon may tell of a worker that is gone, on the stderr that it shares, and be ended as it does."""


def without_words_of_pyspark(log: str) -> str:
    """The lines of our log, then what else was said, but for broken pipes: they come in between."""
    lines = log.splitlines(keepends=True)
    other = "".join(line for line in lines if not line.startswith("{"))
    return "".join(line for line in lines if line.startswith("{")) + BROKEN_PIPE_OF_PYSPARK.sub("", other)
