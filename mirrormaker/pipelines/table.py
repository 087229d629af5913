"""A table of files that is only ever changed by whole batches and whole windows.

Beside the data there is `_mirrormaker/`, which readers pass over as all names with `_`:

    owner.json       which pipeline and checkpoint loads it
    columns.json     the columns that its files have, and their types
    layout.json      their format, the columns that subfolders are named by, and the options that files are
                     written with now
    staging/ID/      what is being written, and not yet part of the table
    commits/KEY.json files and rows of a batch, made before the files are moved in: from then on the batch
                     is part of the table. One that comes again is known by its key, and not written again
    swap.json        windows that are being replaced, made once their new files are staged: from then on they
                     are

A crash leaves either nothing of a batch, or a note by which the next run ends what was begun (`recover`).
On a local disk so does a loss of power: what is staged is on the disk before its note is, that before
anything is moved, and what was moved before anything is removed.
A window is replaced in one step where the filesystem can swap folders (Linux, locally), else file by file: a
folder that is renamed by copies, as in object stores, may be left at both places in part, and so may a file.
Whoever changes a table holds the lock of its pipeline.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from broker.errors import ConfigurationError
from mirrormaker.pipelines.notes import GARBLED, is_garbled, read_note, write_note
from mirrormaker.pipelines.table_files import FileError, TableFiles
from mirrormaker.pipelines.windows import NO_VALUE, Span, windows_within

_NOTES = "_mirrormaker"
_OWNER = f"{_NOTES}/owner.json"
_COLUMNS = f"{_NOTES}/columns.json"
_LAYOUT = f"{_NOTES}/layout.json"
_STAGING = f"{_NOTES}/staging"
_COMMITS = f"{_NOTES}/commits"
_SWAP = f"{_NOTES}/swap.json"
_MARK = "_new"
"""Stands in a staged window until it has been swapped in."""
NAME_BYTES_MAX = 255
"""Of most filesystems."""
_NO_FOLDER = ("Mkdirs failed", "File name too long", "FileAlreadyExistsException")
_ESCAPED = r"[\x01-\x1f\x7f\"#%'*/:=?\\{\[\]^]"
"""What stands as `%` and two digits in names of subfolders (Spark's `ExternalCatalogUtils`)."""
COMMITS_KEPT = 10
"""Batches that are known again; Spark repeats the last alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """How the files of a table are written."""

    format: str
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_names(self) -> bool:
        """Whether its files begin with a line of names."""
        options = {name.lower(): value for name, value in self.options.items()}
        return options.get("header", "false").lower() == "true" and self.format == "csv"

    @property
    def kept(self) -> TableLayout:
        """What all files of a table have in common."""
        return replace(self, options={})

    def __str__(self) -> str:
        folders = f"by {', '.join(self.partition_by)}" if self.partition_by else "without subfolders"
        return f"{self.format} {folders}"


class Table:
    """See the module."""

    def __init__(self, spark: SparkSession, root: str, layout: TableLayout) -> None:
        self.files = TableFiles(spark, root)
        self.layout = layout
        self._spark = spark

    def claim(self, pipeline: str, checkpoint: str) -> None:
        """Be the one that loads it. Raises ConfigurationError when another checkpoint did."""
        owner = read_note(self.files, _OWNER)
        mine = {"pipeline": pipeline, "checkpoint": checkpoint}
        if owner == mine:
            return
        if owner is not None:
            said = f"pipeline {owner['pipeline']!r} with another checkpoint"
            hint = "bring that back, or move the folder away"
            raise ConfigurationError([f"{self.files.root}: was loaded by {said}: {hint}"])
        if self.files.list_files("") and not self._has_batches_of(checkpoint):
            if is_garbled(self.files, _OWNER):
                hint = f"have it say {json.dumps(mine)} if that has, or move the folder away"
                told = f"{GARBLED}, and does not say who has loaded the table"
                raise ConfigurationError([f"{self.files.url(_OWNER)}: {told}: {hint}"])
            raise ConfigurationError([f"{self.files.root}: holds files that no pipeline has written"])
        self.files.make_folder(_NOTES)
        write_note(self.files, _OWNER, mine)

    def _has_batches_of(self, checkpoint: str) -> bool:
        """Whether it is known to be loaded by this checkpoint, whatever has become of `owner.json`."""
        if not is_garbled(self.files, _OWNER):
            return False
        return any(name.startswith(f"{checkpoint}-") for name in self.files.list_names(_COMMITS))

    def changed_layout(self) -> list[str]:
        """How the files that are there differ from those that would come, in words: readers cannot have both
        for one table.
        """
        known = self._noted_layout()
        if known is None or known.kept == self.layout.kept or not self.files.list_files(""):
            return []
        return [
            f"{self.files.root}: has files of {known}, and these would be of {self.layout}: choose another"
            " folder"
        ]

    def note_layout(self) -> None:
        """Remember how its files are written. Raises ConfigurationError."""
        if problems := self.changed_layout():
            raise ConfigurationError(problems)
        if self._noted_layout() != self.layout:
            write_note(self.files, _LAYOUT, asdict(self.layout))

    def noted_options(self) -> Mapping[str, str]:
        """That its files were written with last."""
        known = self._noted_layout()
        return {} if known is None else known.options

    def _noted_layout(self) -> TableLayout | None:
        told = read_note(self.files, _LAYOUT)
        if told is None:
            return None
        return TableLayout(**{**told, "partition_by": tuple(told["partition_by"])})

    def changed_columns(self, frame: DataFrame) -> list[str]:
        """Which columns of `frame` have another type, name or place in the files that are there, in words."""
        problems = self._differences(frame, self.column_types())
        return problems if problems and self.files.list_files("") else []

    def _differences(self, frame: DataFrame, known: Mapping[str, str]) -> list[str]:
        fold = name_fold(self._spark)
        by_name = {fold(name): name for name in known} | {name: name for name in known}
        problems = []
        for name, kind in frame.dtypes:
            there = by_name.get(name, by_name.get(fold(name), name))
            if there != name:
                problems.append(f"column {name!r} is called {there!r} in the files of {self.files.root}")
            elif known.get(name, kind) != kind:
                problems.append(
                    f"column {name!r} is {kind}, and {known[name]} in the files of {self.files.root}: choose"
                    " another folder, or cast it"
                )
        return problems or self._moved_columns(frame, known)

    def _moved_columns(self, frame: DataFrame, known: Mapping[str, str]) -> list[str]:
        """Lines of CSV without names tell columns by their places alone."""
        if self.layout.format != "csv" or self.layout.has_names:
            return []
        before, now = (
            [name for name in names if name not in self.layout.partition_by]
            for names in (known, frame.columns)
        )
        shared = min(len(before), len(now))
        if before[:shared] == now[:shared]:
            return []
        return [
            f"columns are {', '.join(now)}, and {', '.join(before)} in the files of {self.files.root}, which"
            " do not name them: keep that order, with new ones at the end, or choose another folder"
        ]

    def note_columns(self, frame: DataFrame) -> None:
        """Remember the columns of `frame` along with those that files have. Raises ConfigurationError."""
        if problems := self.changed_columns(frame):
            raise ConfigurationError(problems)
        known, now = self.column_types(), dict(frame.dtypes)
        both = now if self._differences(frame, known) else known | now
        if known != both:
            write_note(self.files, _COLUMNS, both)

    def column_types(self) -> dict[str, str]:
        """Those of the files, in the order in which they came; {} before the first."""
        return read_note(self.files, _COLUMNS) or {}

    def recover(self) -> None:
        """End what a crash left half done."""
        self._end_swap()
        for name in self.files.list_names(_COMMITS):
            if name.endswith(".json") and not name.startswith("."):
                self._move_in(read_note(self.files, f"{_COMMITS}/{name}") or {})
        self.files.discard(_STAGING)

    def holds(self, key: str, number: int) -> bool:
        """Whether a batch is part of the table, as far back as batches are known again."""
        return read_note(self.files, _note_of(key, number)) is not None

    def append(self, key: str, number: int, frame: DataFrame) -> int:
        """Add the rows of a batch, once; returns how many it has. `number` counts the batches of `key`."""
        rows = self._commit(_note_of(key, number), frame)
        for name in self._notes_before(key, number - COMMITS_KEPT + 1):
            self.files.discard(f"{_COMMITS}/{name}")
        return rows

    def _notes_before(self, key: str, number: int) -> list[str]:
        """Those of earlier batches: not each number need have one."""
        numbers = {
            name: name.removeprefix(f"{key}-").removesuffix(".json")
            for name in self.files.list_names(_COMMITS)
            if name.startswith(f"{key}-")
        }
        return [name for name, told in numbers.items() if told.isdecimal() and int(told) < number]

    def add(self, frame: DataFrame) -> int:
        """Add rows that are of no batch: all or none of them, and again when they come again. Returns how
        many.
        """
        note = _note_of(f"added-{uuid.uuid4().hex}", 0)
        rows = self._commit(note, frame)
        self.files.discard(note)
        return rows

    def replace(self, asked: Span, frame: DataFrame) -> tuple[list[str], int]:
        """Have the windows inside `asked` hold the rows of `frame`, all of which are inside, and nothing
        else. Returns the windows that were or are there, and the rows.
        """
        staged, files, rows = self._stage(frame)
        folders = {name.rpartition("/")[0] for name in files}
        windows = sorted({*folders, *windows_within(self.files.list_folders(""), asked)})
        self.swap(staged, windows)
        return windows, rows

    def swap(self, staged: str, windows: list[str]) -> None:
        """Have these windows hold what is staged for them; those without any are removed."""
        written: dict[str, list[str]] = {}
        for path in self.files.list_files(staged):
            window, _, name = path.rpartition("/")
            written.setdefault(window, []).append(name)
        for window in written:
            self.files.write_text(f"{staged}/{window}/{_MARK}", "")
        removed = sorted(set(windows) - set(written))
        self.files.sync_all(staged)
        write_note(self.files, _SWAP, {"staged": staged, "written": written, "removed": removed})
        self._end_swap()

    def stage(
        self, frame: DataFrame, layout: TableLayout, window: str = "", beside: str | None = None
    ) -> str:
        """Write rows aside, all of them for `window` where one is named, `beside` others that are; returns
        where. Raises FileError for texts that can name no subfolder.
        """
        staged = beside or f"{_STAGING}/{uuid.uuid4().hex}"
        writer = frame.write.format(layout.format).options(**layout.options).mode("append")
        if layout.partition_by:
            writer = writer.partitionBy(*layout.partition_by)
        self.files.make_folder(_STAGING)
        try:
            writer.save(self.files.url(f"{staged}/{window}" if window else staged))
        except (PySparkException, Py4JError) as error:
            self.files.discard(staged)  # which may be what has filled the disk
            if problem := _unnamed_folder(frame, layout, str(error)):
                raise FileError(f"{self.files.root}: {problem}") from error
            raise
        return staged

    def _commit(self, note: str, frame: DataFrame) -> int:
        """Have the rows be part of the table, unless the note says that they are."""
        commit = read_note(self.files, note)
        if commit is None:
            staged, files, rows = self._stage(frame)
            self.files.sync_all(staged)
            commit = {"staged": staged, "files": files, "rows": rows}
            self.files.make_folder(_COMMITS)
            write_note(self.files, note, commit)
        self._move_in(commit)
        self.files.discard(str(commit["staged"]))
        return int(commit["rows"])

    def _stage(self, frame: DataFrame) -> tuple[str, list[str], int]:
        """Where the rows are, their files, and how many: counted on their way, as lines of text need not be
        rows. Raises FileError where there are rows and no files, which would be lost without a word.
        """
        seen = Observation()
        counted = frame.observe(seen, f.count(f.lit(1)).alias("rows"))
        staged = self.stage(counted, self.layout)
        rows, files = int(seen.get["rows"]), self.files.list_files(staged)
        if rows and not files:
            raise FileError(f"{self.files.url(staged)}: has no files of the {rows} rows that were written")
        return staged, files, rows

    def _move_in(self, commit: Mapping[str, object]) -> None:
        files, staged = commit.get("files", []), commit.get("staged")
        assert isinstance(files, list)
        if staged is None or not self.files.exists(str(staged)):
            return  # all of it was moved
        self._move_files(f"{staged}/", "", files)

    def _move_files(self, source: str, target: str, names: list[str]) -> None:
        """Those that have not been moved yet; what is at both places was copied, maybe not to its end."""
        for name in names:
            if self.files.exists(f"{source}{name}"):
                self.files.delete(f"{target}{name}")
                self.files.rename(f"{source}{name}", f"{target}{name}")
        self.files.sync(*sorted({f"{target}{name}".rpartition("/")[0] for name in names}))

    def _end_swap(self) -> None:
        told = read_note(self.files, _SWAP)
        if told is None:
            self.files.delete(_SWAP)  # nothing was swapped yet
            return
        staged = told["staged"]
        for window, names in told["written"].items():
            self._swap_window(f"{staged}/{window}", window, names)
        self.files.sync(*sorted({f"{window}/.." for window in told["written"] if window}))
        for window in told["removed"]:
            for gone in [window] if window else self.files.list_files(""):
                self.files.delete(gone)
        self.files.discard(staged)
        self.files.delete(_SWAP)
        self.files.sync(_NOTES)  # else it is done again after a loss of power, when more may be in there

    def _swap_window(self, staged: str, window: str, names: list[str]) -> None:
        """Unless that is done already: what was swapped in took its mark along."""
        if self.files.exists(f"{staged}/{_MARK}"):
            self.files.make_folder(window)
            if not self.files.exchange(staged, window):
                for name in sorted(set(self.files.list_files(window)) - set(names)):
                    self.files.delete(f"{window}/{name}")
                self._move_files(f"{staged}/", f"{window}/", names)
        self.files.delete(f"{window}/{_MARK}")


def name_fold(spark: SparkSession) -> Callable[[str], str]:
    """What makes names of columns alike that are one column for Spark."""
    return str if spark.conf.get("spark.sql.caseSensitive") == "true" else str.lower


def _unnamed_folder(frame: DataFrame, layout: TableLayout, failure: str) -> str | None:
    """What Spark could make no subfolder of, by the words that it has for that; looked for only then."""
    texts = [name for name, kind in frame.dtypes if name in layout.partition_by and kind == "string"]
    if not texts or not any(word in failure for word in _NO_FOLDER):
        return None
    columns = [f.col(f"`{name}`") for name in texts]
    sizes = [f.max(f.octet_length(f.regexp_replace(each, _ESCAPED, "%00"))) for each in columns]
    doubled = [f.max(each.isNull()) & f.max(each == NO_VALUE) for each in columns]
    row = frame.select(*columns).agg(*sizes, *doubled).first()
    assert row is not None
    for name, size, is_doubled in zip(texts, row[: len(texts)], row[len(texts) :], strict=True):
        if size is not None and len(f"{name}=".encode()) + size > NAME_BYTES_MAX:
            told = f"a text of {size} bytes can name no subfolder: have a step cut it, or leave its rows out"
            return f"column {name!r}: {told}"
        if is_doubled:
            told = f"null and {NO_VALUE!r} would be one subfolder: have a step make them different"
            return f"column {name!r}: {told}"
    return None


def _note_of(key: str, number: int) -> str:
    return f"{_COMMITS}/{key}-{number}.json"


def probe(spark: SparkSession, root: str) -> str | None:
    """Why a folder cannot be written, None when it can."""
    try:
        files = TableFiles(spark, root)
        files.make_folder(_NOTES)
        files.write_text(f"{_NOTES}/probe", "x")  # which takes room
        files.delete(f"{_NOTES}/probe")
    except FileError as error:
        return str(error)
    return None
