"""Things that are there if one file is, and only then: a tag, a backup. What is told of making and removing them.

A call that fails may have done its work all the same. So an error means that nothing has changed, and that was seen:
the file that may have landed is taken away again, the one that may be gone is looked for. Where that cannot be found
out, or a power cut could still turn it around, the answer is `CommitUnknown`. What is tidied up afterwards changes
nothing about the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath

from lithify.errors import CommitUnknown, LithifyError, Unavailable
from lithify.files.os_errors import Exists
from lithify.files.storage import Storage

Put = Callable[[PurePath, bytes], None]


def establish(store: Storage, put: Put, path: PurePath, document: bytes, what: str, *, alone: bool = True) -> None:
    """`put`: of the store, one that replaces or one that does not. Raises Exists as that does. `alone`: nobody else
    makes the same thing, so that what is there is ours and can be taken away.
    """
    try:
        put(path, document)
    except Exists:
        raise
    except Exception as error:
        if store.remote and isinstance(error, Unavailable):
            raise _unknown(f"was made: {error}", what) from error  # it may land later
        if not (_is_taken_back(store, path) if alone else _is_missing(store, path)):
            raise _unknown(f"was made: {error}", what) from error
        raise


def abolish(store: Storage, path: PurePath, what: str) -> None:
    try:
        store.delete(path)
        store.sync_folder(path.parent)
    except Exception as error:
        if _is_missing(store, path, if_unknown=True):
            raise _unknown(f"is gone for good: {error}", what) from error
        raise


def _is_taken_back(store: Storage, path: PurePath) -> bool:
    try:
        store.delete(path)
        store.sync_folder(path.parent)
    except LithifyError:
        return False
    return True


def _is_missing(store: Storage, path: PurePath, *, if_unknown: bool = False) -> bool:
    try:
        return not store.exists(path)
    except LithifyError:
        return if_unknown


def _unknown(why: str, what: str) -> CommitUnknown:
    return CommitUnknown(f"it could not be determined whether {what} {why}; look what is there before you try again")
