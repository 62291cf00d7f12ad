"""Writing files so that a reader never sees half of one."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success rename it into place, on failure remove it.

    The rename is atomic because both names lie in one directory, hence on one file system. The file is flushed to
    disk before the rename, so that a crash leaves either the old content or the new.

    Examples
    --------
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with atomic_write(target) as scratch:
    ...     _ = scratch.write_text("whole")
    >>> target.read_text()
    'whole'
    """
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    except OSError as error:  # it is about a name that nobody gave
        raise type(error)(error.errno, error.strerror, str(target.parent)) from None
    os.close(handle)
    scratch = Path(name)
    try:
        yield scratch
        with scratch.open("r+b") as written:  # Windows flushes only what may be written
            os.fsync(written.fileno())
        # mkstemp makes private files; a result should have the permissions that the user's umask gives to any other
        # file.
        umask = os.umask(0)
        os.umask(umask)
        scratch.chmod(0o666 & ~umask)
        scratch.replace(target)
    except OSError as error:
        if error.filename is not None:
            raise
        # A full disk does not say which file it was about.
        raise OSError(error.errno, error.strerror or str(error), str(target)) from error
    finally:
        scratch.unlink(missing_ok=True)
