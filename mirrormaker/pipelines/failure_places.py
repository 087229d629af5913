"""Where in its file the pipeline says what has failed while rows were computed: the step whose text Spark
names, or else the sink that the rows were for, as what leads to that may be spread over many steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.errors import PySparkException, QueryContextType

from mirrormaker.topology.model import PipelineSpec, StepSpec


def place_of_failure(pipeline: PipelineSpec, sink: int, error: Exception) -> str:
    """The path below the pipeline's."""
    found = list(_named_steps(pipeline.steps, error)) if isinstance(error, PySparkException) else []
    return f"steps[{found[0]}].sql" if len(found) == 1 else f"sinks[{sink}]"


def _named_steps(steps: Sequence[StepSpec], error: PySparkException) -> Iterator[int]:
    """Those that have the text that failed where it is said to be."""
    texts = {
        (context.startIndex(), context.fragment())
        for context in error.getQueryContext()
        if context.contextType() is QueryContextType.SQL
    }
    for number, step in enumerate(steps):
        if any((step.sql or "").startswith(text, begin) for begin, text in texts if text and begin >= 0):
            yield number
