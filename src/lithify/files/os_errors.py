"""What the operating system's errors mean to us: translated once, with their cause kept."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import PurePath

from lithify.errors import Conflict, Corruption, LithifyError, NotFound, Unavailable


class Exists(Conflict):
    """Something has the name already. Internal: whoever creates a thing says what that means. `found`: what it is,
    where that had to be read to know that it is another's.
    """

    found: bytes | None = None


class InDoubt(Unavailable):
    """What was asked may be done by now, or be done later. Internal, as `Exists` is."""


@contextlib.contextmanager
def translated(path: PurePath | str) -> Iterator[None]:
    """Foreign errors of file access become ours, named after the path."""
    try:
        yield
    except LithifyError:
        raise
    except FileNotFoundError as error:
        raise NotFound(f"{_named(error, path)} does not exist") from error
    except OSError as error:
        raise os_error(error, path) from error


def os_error(error: OSError, path: PurePath | str) -> LithifyError:
    named = _named(error, path)
    match error.errno:
        case errno.EEXIST:
            return Exists(f"{named} exists already")
        case errno.ENOSPC | errno.EDQUOT:
            return Unavailable(
                f"no space left while writing {named}: free some disk space, then retry; nothing was changed",
                disk_full=True,
            )
        case errno.EMFILE | errno.ENFILE:
            return Unavailable(
                f"too many files are open to open {named}: retry; if it stays so, raise the limit (ulimit -n)"
            )
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return Unavailable(f"no permission for {named}: check the owner and mode of the folder")
        case errno.EIO:
            return Corruption(f"the disk reports an I/O error for {named}: check the device")
        case _:
            return Unavailable(f"{named}: {error.strerror or error}")


def _named(error: OSError, path: PurePath | str) -> PurePath | str:
    """What an error is about; a name inside of an open folder says less than the path."""
    named = error.filename
    return named if isinstance(named, str) and named.startswith("/") else path
