"""What a commit came to, once it was tried.

From the moment that a commit may have landed, nothing it names is deleted, whatever goes wrong: one errno too late, and
the log would name files that are gone. So each commit is an `Intent`: its id in the log, and `may_stand`, which the log
sets before it tries and takes back only after it was read and says no. Whoever staged files asks the intent before
removing any of them, not the exception that happens to come by. An answer is one of three:

| what is known                    | answer                                     | `may_stand` |
|----------------------------------|--------------------------------------------|-------------|
| it is in the log                 | the version                                | yes         |
| the log was read, and says no    | `Lost`, or the error that prevented it     | no          |
| anything else                    | `CommitUnknown`                            | yes         |
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from deltalake.exceptions import CommitFailedError

from lithify.delta.actions import parse_record
from lithify.delta.commit_files import Commits
from lithify.delta.folder import commit_name
from lithify.delta.open_log import translated_error
from lithify.errors import CommitUnknown, LithifyError
from lithify.files.os_errors import Exists, InDoubt


class Lost(Exception):
    """Another commit took the version: the log was read, and ours is not in it. Internal: never leaves the engine."""


class NotCommitted(Exception):
    """The log was read, and ours is not in it, because of `error`. Internal: never leaves the log."""

    def __init__(self, error: LithifyError) -> None:
        super().__init__(str(error))
        self.error = error


class Intent:
    """One commit, over all attempts at it."""

    def __init__(self, write_id: str) -> None:
        self.id = write_id
        self.may_stand = False

    @contextlib.contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """Try to commit inside. Whatever is raised there that is not the log's own word leaves the outcome open; being
        stopped does too, but is no answer to anybody.
        """
        self.may_stand = True
        try:
            yield
        except Lost:
            self.may_stand = False
            raise
        except NotCommitted as refused:
            self.may_stand = False
            raise refused.error from refused.__cause__
        except CommitUnknown:
            raise
        except Exception as error:
            raise CommitUnknown(
                f"whether {what} was committed could not be determined ({error}): read the table before you retry"
            ) from error


def check_outcome(commits: Commits, target: int, intent: Intent, error: Exception) -> None:
    """After a failed attempt, ask the log: returns if it stands, else raises Lost or NotCommitted. What cannot be read
    here says nothing.
    """
    if isinstance(error, InDoubt):
        raise error
    if isinstance(error, Exists) and error.found:
        # Whoever came first was read.
        with contextlib.suppress(ValueError):
            if parse_record(target, error.found).info.get("write_id") == intent.id:
                return
        raise Lost from error
    if commits.exists(target):
        if isinstance(error, Exists) and not commits.read(commit_name(target)).strip():
            raise Lost from error  # somebody's that is on its way, or damaged: the next look tells
        if commits.record(target).info.get("write_id") == intent.id:
            return
        raise Lost from error
    if commits.listing().commits[-1:] > (target,):
        raise Lost from error
    if isinstance(error, Exists) or (isinstance(error, CommitFailedError) and "Concurrent" in str(error)):
        raise Lost from error
    raise NotCommitted(translated_error(error, commits.table)) from error
