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
"""

from __future__ import annotations

from typing import Any, ClassVar


class LithifyError(Exception):
    """Root of all errors that Lithify raises on purpose."""

    code: ClassVar[str] = "error"
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


def _rebuild(kind: type[LithifyError], message: str, public: str | None, details: dict[str, Any]) -> LithifyError:
    return kind(message, public=public, **details)


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
