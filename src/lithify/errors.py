"""What can go wrong, grouped by what the caller does next.

    LithifyError
    ├── InvalidRequest   fix the call: nothing was changed
    ├── NotFound         the table, version or file is not there
    ├── Conflict         somebody else changed it first: look again, then retry
    ├── CommitUnknown    the outcome could not be determined: check before you retry
    ├── Corruption       stored bytes are not what was written: restore or repair
    ├── Unavailable      the environment refuses (disk, permission, Java): repair it, then retry
    ├── Forbidden        the caller's token does not allow this: use another one
    ├── Cancelled        somebody cancelled it: nothing was changed
    └── ComputeFailed    a Spark or SQL computation failed: see the cause
        ├── OutOfResources   memory ran out or a worker died: smaller pieces may succeed
        └── LimitExceeded    a query met one of its limits, which `details["limit"]` names: ask for less, or raise it

Every error has a stable `code`, a message that names the thing and says what to do, and pickles. The message may quote
a value that somebody wrote; `public` never does, and is what the service answers and logs.

Notebooks and Spark show the caller's own lines and the message, and none of ours, unless the setting `all_frames` says
so.
"""

from __future__ import annotations

import functools
import os
import sysconfig
import traceback
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_HERE = f"{os.path.dirname(__file__)}/"
_INSTALLED = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "purelib", "platlib"))


class LithifyError(Exception):
    """Root of all errors that Lithify raises on purpose."""

    code: ClassVar[str] = "error"
    all_frames: ClassVar[bool] = False
    # Said in place of messages that pass on what another program said, which may quote values.
    _public_default: ClassVar[str | None] = None

    def __init__(self, message: str, *, public: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self._public = public

    @property
    def public(self) -> str:
        """The message without values of rows. Whoever puts a value into a message gives this one too."""
        return self._public or self._public_default or self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self._public, self.details)

    def __str__(self) -> str:
        return self.message

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: frames of whoever called, and the message."""
        if self.all_frames:
            return "".join(traceback.format_exception(self)).splitlines()
        frames = [frame for frame in traceback.extract_tb(self.__traceback__) if _is_callers(frame.filename)]
        shown = ["Traceback (most recent call last):\n", *traceback.format_list(frames)] if frames else []
        return "".join([*shown, *traceback.format_exception_only(self)]).splitlines()


def _rebuild(kind: type[LithifyError], message: str, public: str | None, details: dict[str, Any]) -> LithifyError:
    return kind(message, public=public, **details)


def _is_callers(file: str) -> bool:
    """Whether it is neither ours nor installed, as the notebook's own machinery is."""
    return not file.startswith((_HERE, *_INSTALLED))


def did_you_mean(name: str, there: Iterable[str], before: str = "") -> str:
    """A question to put behind an error about a name that does not exist, or nothing. `before`: what all begin with."""
    import difflib  # not worth its time before something goes wrong

    near = difflib.get_close_matches(str(name), sorted(there), 2)
    return f"did you mean {' or '.join(repr(before + one) for one in near)}?" if near else ""


def cut_here(function: Callable[P, T]) -> Callable[P, T]:
    """For what Spark calls: an error of ours is told from here on, without what lies below it."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except LithifyError as error:
            if error.all_frames:
                raise
            raise error.with_traceback(None) from None

    return called


def reason_of(error: BaseException) -> str:
    """What went wrong, in one line of a history or a report; of an error of Python's own its kind as well."""
    return error.message if isinstance(error, LithifyError) else f"{type(error).__name__}: {error}"


class InvalidRequest(LithifyError):
    code = "invalid_request"


class NotFound(LithifyError):
    code = "not_found"


class Conflict(LithifyError):
    code = "conflict"


class CommitUnknown(LithifyError):
    code = "commit_unknown"


class Corruption(LithifyError):
    code = "corruption"


class Unavailable(LithifyError):
    code = "unavailable"


class Forbidden(LithifyError):
    code = "forbidden"


class Cancelled(LithifyError):
    code = "cancelled"


class ComputeFailed(LithifyError):
    code = "compute_failed"
    _public_default: ClassVar[str | None] = "the computation failed"


class OutOfResources(ComputeFailed):
    code = "out_of_resources"
    _public_default = "memory ran out, or a worker died"


class LimitExceeded(ComputeFailed):
    code = "limit_exceeded"
    _public_default = None
