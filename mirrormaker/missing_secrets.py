"""Secrets that a topology refers to and that are not there; a daemon on another host may have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from broker.client.security.disclosure import disclose_filled
from broker.client.security.text_source import TextSource, text_sources
from broker.errors import ConfigurationError
from mirrormaker.steps.outside import read_secret
from mirrormaker.topology.findings import Finding
from mirrormaker.topology.model import JdbcSink, MaskParts, Topology


def missing_secrets(topology: Topology) -> Iterator[Finding]:
    """Each by the key that refers to it. Reads files and the environment."""
    for path, key, read in _references(topology):
        try:
            read()
        except ConfigurationError as error:
            problem = str(error).removeprefix(f"{key}: ")
            where = "it must be there wherever a daemon runs"
            yield Finding(path=path, message=f"{problem} ({where})")


def _references(topology: Topology) -> Iterator[tuple[str, str, Callable[[], object]]]:
    """By path, each with the name of its last key and how it is read."""
    for cluster in topology.clusters.values():
        for source in text_sources(cluster.security):
            path = f"clusters.{cluster.name}.security.{source.option}"
            yield path, source.option, partial(disclose_filled, source)
    for index, route in enumerate(topology.routes):
        for number, transform in enumerate(route.transforms):
            step = transform.step
            if isinstance(step, MaskParts) and step.salt is not None:
                path = f"routes[{index}].transforms[{number}].mask.salt"
                yield path, "salt", partial(read_secret, "salt", step.salt)
    for index, pipeline in enumerate(topology.pipelines):
        for number, sink in enumerate(pipeline.sinks):
            if isinstance(sink.target, JdbcSink) and sink.target.password is not None:
                source = TextSource.parse("password", sink.target.password)
                path = f"pipelines[{index}].sinks[{number}].jdbc.password"
                yield path, "password", partial(disclose_filled, source)
