"""Files of a table on any filesystem that Spark's machines reach, through Hadoop's own interface.

All paths are relative to the root of the table. A text is there whole, as it was or as it is now, whatever
died while it was written; no filesystem need be able to put a file in another one's place for that.

On a local filesystem texts are written past Hadoop, whose streams do not wait for the disk there. What Spark
has written there is on the disk once it is synced (`sync_all`); other filesystems see to that themselves.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from broker.errors import BrokerError
from mirrormaker.durable_files import make_folder, sync, sync_all, write_whole

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
AS_NAMED = {"__globPaths__": "false"}
"""Of Spark's readers: folders that are called `a[b]` or `*` are no patterns."""
_NEXT = ".next"
"""Ends the name of a file that is whole and about to take the place of another."""


class FileError(BrokerError):
    """A filesystem refused."""


class TableFiles:
    """See the module. Calls block."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        """Raises FileError when there is no such filesystem."""
        self.root = root.rstrip("/")
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._path: Any = jvm.org.apache.hadoop.fs.Path
        configuration = spark._jsc.hadoopConfiguration()
        self._fs: Any = self._ask(lambda: self._path(self.root).getFileSystem(configuration))
        where = self._ask(lambda: self._fs.makeQualified(self._path(self.root)).toUri())
        self._local = str(where.getPath()) if where.getScheme() == "file" else None

    def url(self, path: str) -> str:
        """The path as Spark takes it."""
        return f"{self.root}/{path}" if path else self.root

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""
        return bool(self._ask(lambda: self._fs.exists(self._at(path))))

    def make_folder(self, path: str) -> None:
        """Have the folder, and those around it. Raises FileError."""
        if self._local is not None:
            with _translated(self.url(path)):
                make_folder(Path(self._local, path))
        elif not self._ask(lambda: self._fs.mkdirs(self._at(path))):
            raise FileError(f"{self.url(path)}: cannot be made")

    def list_files(self, path: str) -> list[str]:
        """All files below a folder but hidden ones, relative to it, sorted."""
        names = self._names_below(path) if self._local is None else _local_names(self._local, path)
        return sorted(name for name in names if not any(map(_is_hidden, name.split("/"))))

    def _names_below(self, path: str) -> Iterator[str]:
        """By Hadoop: five calls to the JVM for each file."""
        if not self.exists(path):
            return
        prefix = str(self._ask(lambda: self._fs.makeQualified(self._at(path)).toUri().getPath()))
        files = self._ask(lambda: self._fs.listFiles(self._at(path), True))
        while self._ask(files.hasNext):
            yield str(files.next().getPath().toUri().getPath()).removeprefix(prefix).lstrip("/")

    def list_folders(self, path: str) -> list[str]:
        """The folders that hold files, as `list_files` finds them."""
        return sorted({name.rpartition("/")[0] for name in self.list_files(path)})

    def size_of(self, path: str) -> int:
        """Bytes of a file."""
        return int(self._ask(lambda: self._fs.getFileStatus(self._at(path)).getLen()))

    def list_names(self, path: str) -> list[str]:
        """What stands in a folder itself; a text by its name, also while another is to take its place."""
        if not self.exists(path):
            return []
        found = self._ask(lambda: self._fs.listStatus(self._at(path)))
        return sorted({str(each.getPath().getName()).removesuffix(_NEXT) for each in found})

    def rename(self, path: str, to: str) -> None:
        """Move a file or folder to where nothing is; the folder around it is made."""
        if "/" in to:
            self.make_folder(to.rpartition("/")[0])
        if not self._ask(lambda: self._fs.rename(self._at(path), self._at(to))):
            raise FileError(f"{self.url(path)}: cannot be moved to {to}")

    def exchange(self, path: str, other: str) -> bool:
        """Swap two folders in one step. False where the filesystem cannot; nothing has happened then."""
        if self._local is None:
            return False
        one, two = (os.fsencode(os.path.join(self._local, each)) for each in (path, other))
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "renameat2"):
            return False
        if libc.renameat2(_AT_FDCWD, one, _AT_FDCWD, two, _RENAME_EXCHANGE) == 0:
            return True
        number = ctypes.get_errno()
        if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            return False
        raise FileError(f"{self.url(path)}: {os.strerror(number)}")

    def delete(self, path: str) -> None:
        """Remove a file, or a folder and all in it; nothing happens when it is not there. Raises FileError,
        also where part of it stays.
        """
        if not self.discard(path) and self.exists(path):
            raise FileError(f"{self.url(path)}: cannot be removed")

    def discard(self, path: str) -> bool:
        """As `delete`, for what nobody reads any more: it stays where a filesystem does not let it go, which
        is False.
        """
        return bool(self._ask(lambda: self._fs.delete(self._at(path), True)))

    def read_text(self, path: str) -> str | None:
        """A whole file; None when it is not there."""
        for name in (path, f"{path}{_NEXT}"):
            if self.exists(name):
                return self._read(name)
        return None

    def _read(self, path: str) -> str:
        if self._local is not None:  # past sums of Hadoop's, which may be of what the power cut off
            with _translated(self.url(path)):
                return Path(self._local, path).read_text(encoding="utf-8", errors="replace")
        stream = self._ask(lambda: self._fs.open(self._at(path)))
        try:
            return str(self._ask(lambda: self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")))
        finally:
            self._ask(stream.close)

    def write_text(self, path: str, text: str) -> None:
        """Have the file hold this: a crash leaves what it held before, or all of this. Folders around it are
        made. Raises FileError.
        """
        if self._local is not None:
            with _translated(self.url(path)):
                _write_here(Path(self._local, path), text)
        else:
            self._write_by_hadoop(path, text)

    def _write_by_hadoop(self, path: str, text: str) -> None:
        aside = f"{path}.{uuid.uuid4().hex[:8]}.tmp"
        try:
            self._write(aside, text)
        except FileError:
            with contextlib.suppress(FileError):
                self.delete(aside)
            raise
        following = f"{path}{_NEXT}"
        if not self.exists(path) and self.exists(following):
            self.rename(following, path)
        if self.exists(path):
            self.delete(following)
            self.rename(aside, following)
            self.delete(path)
            self.rename(following, path)
        else:
            self.rename(aside, path)

    def sync(self, *paths: str) -> None:
        """Have files, or the names that folders have, on the disk where that is local; those that are there.
        Raises FileError.
        """
        if self._local is not None:
            for path in paths:
                with _translated(self.url(path)), contextlib.suppress(FileNotFoundError):
                    sync(Path(self._local, path))

    def sync_all(self, path: str) -> None:
        """Have a folder on the disk where that is local, with all that is in it. Raises FileError."""
        if self._local is not None:
            with _translated(self.url(path)):
                sync_all(Path(self._local, path))

    def _write(self, path: str, text: str) -> None:
        stream = self._ask(lambda: self._fs.create(self._at(path), True))
        try:
            self._ask(lambda: stream.write(text.encode()))
            self._ask(stream.hsync)
        finally:
            self._ask(stream.close)

    def _at(self, path: str) -> Any:
        return self._path(self.url(path))

    def _ask(self, call: Any) -> Any:
        try:
            return call()
        except Py4JJavaError as error:
            cause = error.java_exception
            raise FileError(f"{self.root}: {cause.getMessage() or cause.toString()}") from error


def _is_hidden(part: str) -> bool:
    return part.startswith(("_", "."))


def _write_here(file: Path, text: str) -> None:
    make_folder(file.parent)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)  # Hadoop's, of what it held before
    write_whole(file, text)
    file.with_name(f"{file.name}{_NEXT}").unlink(missing_ok=True)


@contextlib.contextmanager
def _translated(where: str) -> Iterator[None]:
    """Raises FileError for what the machine refused."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{where}: {error.strerror or error}") from error


def _local_names(root: str, path: str) -> Iterator[str]:
    """Files below a folder of this machine, relative to it; none in hidden folders. Raises FileError."""
    top = os.path.join(root, path)

    def meet(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise FileError(f"{error.filename}: {error.strerror}") from error

    for folder, folders, files in os.walk(top, onerror=meet, followlinks=True):
        folders[:] = [name for name in folders if not _is_hidden(name)]
        for name in files:
            yield os.path.relpath(os.path.join(folder, name), top)
