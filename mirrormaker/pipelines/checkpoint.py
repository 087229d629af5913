"""What is kept of how far a pipeline has loaded: Spark's checkpoint, and beside it

    generation               what this checkpoint is called: batches are counted anew with another
    GENERATION/beginning     where the first run began, by partition, noted before its first batch
    GENERATION/queries       what each query is for, and whether it keeps state; also of sinks that the file
                             had once and has no more, for which Spark keeps theirs
    GENERATION/topics        ids of topics that have come since, as the first run after that has found them
    GENERATION/QUERY/        Spark's own: offsets of every batch before it begins, and that it is done

Spark notes where a batch ends and not where the first one began: that is asked of the source again when the
first batch comes again, by when `latest` would be elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession

from mirrormaker.pipelines.notes import GARBLED, is_garbled, read_note, write_note
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.run_record import counted_batches
from mirrormaker.pipelines.source import Offsets
from mirrormaker.pipelines.table_files import FileError, TableFiles
from mirrormaker.spark.offsets import topic_ids_from_json
from mirrormaker.topology.model import FileSink, JdbcSink, LakeSink, PipelineSpec, SinkSpec, TopicSink

LOAD = "load"
"""The query of a pipeline without a watermark."""
_GENERATION = "generation"
_BEGINNING = "beginning"
_QUERIES = "queries"
_TOPICS = "topics"
_METADATA = "metadata"
"""Of a query: what Spark calls it."""
_COMMIT_LINES, _OFFSET_LINES = 2, 3
"""In what Spark notes of a batch: the version, and JSON in each line after it."""
_NO_OFFSET = "-"
"""In the place of JSON, for a source that had nothing."""
_PROBE = "probe"
_GENERATION_NAME = re.compile(r"[0-9a-f]{12}")
_ANEW = "give the pipeline another name and another folder to load anew"


def _queries_of(pipeline: PipelineSpec) -> dict[str, Any]:
    return {
        "gathers": pipeline.watermark is not None,
        "sinks": [_target_of(sink) for sink in pipeline.sinks],
        "digests": [_digest_of(sink) for sink in pipeline.sinks],
    }


def _target_of(sink: SinkSpec) -> str:
    match sink.target:
        case FileSink(path=where) | LakeSink(table=where) | JdbcSink(table=where) | TopicSink(topic=where):
            return where


def _moved(known: list[str | None], now: list[str]) -> Iterator[tuple[str, str]]:
    """Sinks of one topic or table that stand where another one of it stood."""
    for number, digest in enumerate(now):
        if digest in known and known[number : number + 1] != [digest]:
            place = known.index(digest)
            yield f"sinks[{number}]", f"its state is that of sinks[{place}]: {_ANEW}, or put it back"


def _digest_of(sink: SinkSpec) -> str:
    """Of what tells a sink from another of the same topic or table; the address may have a password in it."""
    url = sink.target.url if isinstance(sink.target, JdbcSink) else ""
    told = json.dumps([_target_of(sink), sink.source, url])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


class Checkpoint:
    """See the module. Whoever writes holds the pipeline's lock."""

    def __init__(self, spark: SparkSession, pipeline: PipelineSpec, folder: PipelineFolder) -> None:
        self.files = TableFiles(spark, pipeline.checkpoint or str(folder.checkpoint))
        self._folder = folder

    @property
    def generation(self) -> str | None:
        """None before the first run. Raises FileError where it is not known any more."""
        told = (self.files.read_text(_GENERATION) or "").strip()
        if _GENERATION_NAME.fullmatch(told):
            return told
        made = list(filter(_GENERATION_NAME.fullmatch, self.files.list_names("")))
        if len(made) > 1:
            hint = f"have it say which of {', '.join(made)} is in use"
            raise FileError(f"{self.files.url(_GENERATION)}: {GARBLED}: {hint}, or {_ANEW}")
        return made[0] if made else None

    def probe(self) -> str | None:
        """Why it cannot be written, None when it can."""
        try:
            self.files.make_folder("")
            self.files.write_text(_PROBE, "x")  # which takes room
            self.files.delete(_PROBE)
        except FileError as error:
            return str(error)
        return None

    def make_generation(self) -> str:
        """What it is called from now on, if it has not been called anything yet."""
        known = self.generation
        if known is not None:
            return known
        made = uuid.uuid4().hex[:12]
        self.files.make_folder("")
        self.files.write_text(_GENERATION, made)
        return made

    def has_begun(self) -> bool:
        """Whether there is a batch that begins where the one before it has ended."""
        generation = self.generation
        if generation is None:
            return False
        return bool(self._begun_queries(generation))

    def _begun_queries(self, generation: str) -> list[str]:
        names = [
            name
            for name in self.files.list_names(generation)
            if not name.startswith((_BEGINNING, _QUERIES, _TOPICS, "."))
        ]
        return [query for name in names if self._count(query := f"{generation}/{name}", "offsets")]

    def beginning(self) -> Offsets | None:
        """Where the first run began; None where that has not been noted."""
        generation = self.generation
        return None if generation is None else read_note(self.files, f"{generation}/{_BEGINNING}")

    def first_topic_ids(self) -> dict[str, str]:
        """Which topics were the first that were loaded under their names, as far as that has been noted."""
        noted = read_note(self.files, f"{self.generation}/{_TOPICS}") or {}
        begun = topic_ids_from_json(self.beginning() or {})
        return {**topic_ids_from_json(self.loaded_ends()), **noted, **begun}

    def note_start(self, pipeline: PipelineSpec, beginning: Offsets) -> None:
        """Keep what a run is about to do, before it loads anything."""
        generation = self.make_generation()
        self.files.make_folder(generation)
        if not self.has_begun():
            write_note(self.files, f"{generation}/{_BEGINNING}", beginning)
        self._note(f"{generation}/{_TOPICS}", self.first_topic_ids())
        self._note(f"{generation}/{_QUERIES}", self._queries_since(pipeline))

    def _queries_since(self, pipeline: PipelineSpec) -> dict[str, Any]:
        """Those of `pipeline`, and behind its last sink those that others there have had."""
        known, now = self._noted_queries(), _queries_of(pipeline)
        if known is None:
            return now
        beyond = len(pipeline.sinks)
        return now | {name: now[name] + known[name][beyond:] for name in ("sinks", "digests")}

    def _noted_queries(self) -> dict[str, Any] | None:
        """None before there is a batch of them; sinks of which there is none are None."""
        noted = read_note(self.files, f"{self.generation}/{_QUERIES}")
        if noted is None or not self.has_begun():
            return None
        begun = self._begun_places()
        kept = {
            name: [each if place in begun else None for place, each in enumerate(noted.get(name, []))]
            for name in ("sinks", "digests")
        }
        return {**noted, **kept}

    def _begun_places(self) -> set[int]:
        """Numbers of sinks whose query has begun a batch."""
        names = self.files.list_names(self.generation or "")
        return {
            int(number)
            for name in names
            if (number := name.partition("-")[0]).isdecimal()
            and self._count(f"{self.generation}/{name}", "offsets")
        }

    def _note(self, path: str, told: Mapping[str, Any]) -> None:
        if read_note(self.files, path) != told:
            write_note(self.files, path, told)

    def problems(self, pipeline: PipelineSpec) -> Iterator[tuple[str, str]]:
        """Why this checkpoint is none for `pipeline` as it is now: key and message."""
        generation = self.generation
        if generation is not None and not self._has_loaded(generation) and (lost := self.lost_beginning()):
            yield "checkpoint", lost
        for query, last in counted_batches(self._folder.runs()).items():
            if query.startswith(f"{generation}/") and last >= self._count(query, "offsets"):
                message = (
                    f"it does not know of batch {last}, which has been loaded: it is an older copy, or was"
                    f" damaged: bring back the last, or {_ANEW}"
                )
                yield "checkpoint", message
                return
        known, now = self._noted_queries(), _queries_of(pipeline)
        if known is None:
            return
        if known["gathers"] != now["gathers"]:
            word = "with" if known["gathers"] else "without"
            yield "watermark", f"so far it was loaded {word} one: {_ANEW}"
        elif now["gathers"]:
            others = [
                (f"sinks[{number}]", f"this place has the state of {before}: {_ANEW}, or put it back")
                for number, (before, after) in enumerate(zip(known["sinks"], now["sinks"], strict=False))
                if before not in (None, after)
            ]
            yield from others or _moved(known["digests"], now["digests"])

    def lost_beginning(self) -> str | None:
        """Why it is not known any more where the first run began, and what to do about it; None where it is,
        or never was.
        """
        note = f"{self.generation}/{_BEGINNING}"
        if not is_garbled(self.files, note):
            return None
        hint = "have it say where loading began, {TOPIC: {PARTITION: OFFSET}} in JSON"
        return f"{self.files.url(note)}: {GARBLED}: {hint}, or {_ANEW}"

    def _has_loaded(self, generation: str) -> bool:
        """Whether no first batch of a query can come again, which would begin where the first run did."""
        return all(self._count(query, "commits") for query in self._begun_queries(generation))

    def sync_batch(self, query: str, number: int) -> None:
        """Have on the disk what Spark has noted of a batch that begins, and of the one before. What sinks
        have under a number must be what a batch has that comes again under it.
        """
        names = (f"offsets/{number}", f"commits/{number - 1}", _METADATA)
        for name in names:
            folder, slash, file = name.rpartition("/")
            self.files.sync(f"{query}/{name}", f"{query}/{folder}{slash}.{file}.crc", f"{query}/{folder}")
        self.files.sync(query, query.rpartition("/")[0], "")

    def mend(self, query: str, holds: Callable[[int], bool]) -> None:
        """Mend what Spark has noted of a query and a host has lost with its power. A batch of which
        it is not noted that it is done comes again, one whose offsets are not there is made anew; unless
        a sink `holds` one that had others. Raises FileError.
        """
        name = f"{query}/{_METADATA}"
        if self.files.exists(name) and not self._is_whole(name, 1):
            write_note(self.files, name, {"id": str(uuid.uuid4())})
        for notes, lines in (("commits", _COMMIT_LINES), ("offsets", _OFFSET_LINES)):
            number = self._count(query, notes) - 1
            note = f"{query}/{notes}/{number}"
            if number < 0 or self._is_whole(note, lines):
                continue
            if notes == "offsets" and (holds(number) or self._count(query, "commits") > number):
                raise FileError(f"{self.files.url(note)}: {GARBLED}, and its rows are loaded: {_ANEW}")
            self.files.delete(note)

    def _is_whole(self, path: str, lines_min: int) -> bool:
        lines = (self.files.read_text(path) or "").splitlines()
        return len(lines) >= lines_min and _is_json(lines[-1])

    def begun_batches(self) -> int:
        """How many batches have begun: the last need not be done."""
        return self._count(f"{self.generation}/{LOAD}", "offsets")

    def loaded_batches(self) -> int:
        """How many batches are done."""
        return self._count(f"{self.generation}/{LOAD}", "commits")

    def _count(self, query: str, notes: str) -> int:
        names = self.files.list_names(f"{query}/{notes}")
        return max((int(name) + 1 for name in names if name.isdecimal()), default=0)

    def loaded_ends(self) -> Offsets:
        """Up to where the last batch that is done has read, and of which topics; {} before the first. Raises
        FileError where that is not known any more.
        """
        done = self.loaded_batches()
        if not done:
            return {}
        note = f"{self.generation}/{LOAD}/offsets/{done - 1}"
        text = self.files.read_text(note)
        if text is None or text.endswith(f"\n{_NO_OFFSET}"):
            return {}
        if not self._is_whole(note, _OFFSET_LINES):
            raise FileError(f"{self.files.url(note)}: {GARBLED}: bring it back, or {_ANEW}")
        ends = json.loads(text.splitlines()[-1])
        return ends if isinstance(ends, dict) else {}


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return text == _NO_OFFSET
    return True
