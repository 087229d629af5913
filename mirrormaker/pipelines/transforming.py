"""The steps of a pipeline on data frames, of a batch or of a stream."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from broker.errors import BrokerError, ConfigurationError
from mirrormaker.steps.outside import find_function
from mirrormaker.topology.model import RECORDS, PipelineSpec, StepSpec, TableSpec
from mirrormaker.topology.step_order import inputs_of, order_steps, used_names

_GATHERING = re.compile(
    r"Aggregate|Deduplicate\w*|Distinct|Except|Intersect|Window|GlobalLimit|Offset|Tail|CoGroup|MapGroups"
    r"|FlatMap(Co)?Groups\w*|TransformWithState\w*"
)
"""Nodes of Spark's plans that look at several rows at once."""
_KEEPING_LEFT = ("INNER", "CROSS", "LEFT OUTER", "LEFT SEMI", "LEFT ANTI")
_KEEPING_RIGHT = ("INNER", "CROSS", "RIGHT OUTER")
"""Joins that look at each row of that side by itself, where the other one is a table."""
_COMMANDS = ("Command", "ParsedStatement", "InsertIntoDir", "Call")
"""Kinds of nodes of what Spark does at once, as the parser has them."""
_UNION = "Union"
"""The node whose columns pass for those of its first input."""


class FunctionError(BrokerError):
    """A step or a job that is a function of the user's has failed."""


def load_tables(spark: SparkSession, tables: Mapping[str, TableSpec]) -> dict[str, DataFrame]:
    """What steps may join, by name; also as views. Raises PySparkException."""
    found = {}
    for name, spec in tables.items():
        reader = spark.read.format(spec.format.value).options(**spec.options)
        if spec.schema is not None:
            reader = reader.schema(spec.schema)
        found[name] = reader.load(spec.path)
        found[name].createOrReplaceTempView(name)
    return found


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has a parameter of that name; some that are not written in Python do not tell."""
    try:
        return name in inspect.signature(function).parameters
    except ValueError:
        return False


def called(function: Callable[..., Any], *arguments: object, **named: object) -> Any:
    """What a user's function returns. Raises FunctionError for what is no error of Spark or of a cluster,
    also where it would end the process, which ends for signals alone.
    """
    try:
        return function(*arguments, **named)
    except (BrokerError, PySparkException, Py4JError, OSError):
        raise
    except (Exception, SystemExit) as error:
        name = f"{function.__module__}:{function.__qualname__}"
        raise FunctionError(f"{name} failed: {type(error).__name__}: {error}") from error


def apply_steps(pipeline: PipelineSpec, records: DataFrame) -> dict[str, DataFrame]:
    """The result of every step that leads to a sink, by name, and the records. Raises as `apply_step`."""
    spark = records.sparkSession
    tables = load_tables(spark, pipeline.tables)
    frames = {RECORDS: records}
    used, reads = used_names(pipeline), inputs_of(pipeline.steps)
    for step in order_steps(pipeline.steps):
        if step.name in used:
            frames[step.name] = apply_step(step, {name: frames[name] for name in reads[step.name]}, tables)
    return frames


def apply_step(step: StepSpec, inputs: Mapping[str, DataFrame], tables: Mapping[str, DataFrame]) -> DataFrame:
    """One step. Raises PySparkException, ConfigurationError, FunctionError."""
    if step.sql is not None:
        spark = next(iter(inputs.values())).sparkSession
        for name, frame in inputs.items():
            frame.createOrReplaceTempView(name)
        return spark.sql(step.sql)
    assert step.function is not None
    function = find_function(step.function)
    takes_tables = takes(function, "tables")
    result = called(function, *inputs.values(), **({"tables": tables} if takes_tables else {}))
    if not isinstance(result, DataFrame):
        named = f"{step.function.module}:{step.function.name}"
        raise ConfigurationError([f"{named} returned {type(result).__name__}, not a data frame"])
    return result


def is_query(spark: SparkSession, sql: str) -> bool:
    """Whether a text is nothing but a query: commands change something as soon as Spark is asked for their
    result. Raises PySparkException.
    """
    gateway = spark.sparkContext._gateway
    kinds = [f"org.apache.spark.sql.catalyst.plans.logical.{name}" for name in _COMMANDS]
    parsed = spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    return not any(is_instance_of(gateway, node, kind) for node in _nodes(parsed) for kind in kinds)


def gathers_rows(frame: DataFrame) -> bool:
    """Whether a frame looks at several rows of a stream at once, which a batch alone cannot answer."""
    return any(_gathers(node) for node in _nodes(_plan_of(frame)) if node.isStreaming())


def is_of_records(frame: DataFrame) -> bool:
    """Whether every row of a frame comes of a stream's, be it beside those of tables."""
    plan = _plan_of(frame)
    unions = (node for node in _nodes(plan) if node.isStreaming() and _kind_of(node) == _UNION)
    return plan.isStreaming() and all(
        side.isStreaming() for union in unions for side in _listed(union.children())
    )


def keeps_columns(frame: DataFrame, records: DataFrame, names: Iterable[str]) -> bool:
    """Whether these columns of `frame` have what they have in `records`: no step has made them."""
    if any(_kind_of(node) == _UNION for node in _nodes(_plan_of(frame))):
        return False
    kept, known = _attributes_of(frame), _attributes_of(records)
    return all(kept[name] == known.get(name) for name in names)


def _gathers(node: Any) -> bool:
    name = _kind_of(node)
    if name == "Join":
        joined = str(node.joinType().sql())
        left, right = (bool(side.isStreaming()) for side in (node.left(), node.right()))
        if (left and right) or joined not in (_KEEPING_LEFT if left else _KEEPING_RIGHT):
            return True
    return _GATHERING.fullmatch(name) is not None


def _kind_of(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _nodes(plan: Any) -> Iterator[Any]:
    """All nodes of a plan, but for those of subqueries, in which Spark allows no stream."""
    yield plan
    for child in _listed(plan.children()):
        yield from _nodes(child)


def _listed(sequence: Any) -> list[Any]:
    """What a sequence of Scala has."""
    return [sequence.apply(number) for number in range(sequence.size())]


def _plan_of(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _attributes_of(frame: DataFrame) -> dict[str, int]:
    """Column -> the id that Spark gives to what it computes, and keeps where a column is passed on."""
    attributes = _listed(_plan_of(frame).output())
    return {str(attribute.name()): int(attribute.exprId().id()) for attribute in attributes}
