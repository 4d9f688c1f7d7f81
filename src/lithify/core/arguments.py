"""Arguments of public methods, looked at before they go on: a wrong kind of value is named here, not by a library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lithify.errors import InvalidRequest

BATCH_ID_LENGTH_MAX = 256


def check_text(what: str, value: Any) -> None:
    if not isinstance(value, str):
        raise InvalidRequest(f"{what} is a text, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{what} is a text of whole characters; {value!r} has half of one") from None


def check_count(what: str, value: Any, least: int = 0, *, needed: bool = False) -> None:
    """A whole number, or None for no limit, unless one is `needed`."""
    if value is None and not needed:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidRequest(f"{what} is a whole number from {least} on, not {_shown(value)}")


def check_seconds(what: str, value: Any, unit: str = "seconds") -> None:
    """A number above 0, or None for no limit."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        raise InvalidRequest(f"{what} is a number of {unit} above 0, not {_shown(value)}")


def check_names(what: str, value: Any) -> None:
    """Column names in a list, or None for all."""
    if value is None:
        return
    if isinstance(value, str | bytes) or not isinstance(value, Sequence) or not all(isinstance(n, str) for n in value):
        raise InvalidRequest(f"{what} are names in a list, like ['id', 'amount'], not {_shown(value)}")


def check_path(what: str, value: Any) -> None:
    """A folder or file."""
    if not (isinstance(value, str) or hasattr(value, "__fspath__")) or "\0" in str(value) or not str(value):
        raise InvalidRequest(f"{what} is a path, not {_shown(value)}")


def check_batch_id(batch_id: str | None) -> None:
    if batch_id is None:
        return
    if not isinstance(batch_id, str):
        raise InvalidRequest(f"batch_id is a text, not {type(batch_id).__name__}")
    if not 0 < len(batch_id) <= BATCH_ID_LENGTH_MAX:
        raise InvalidRequest(f"batch_id must have 1 to {BATCH_ID_LENGTH_MAX} characters")
    if any("\ud800" <= letter <= "\udfff" for letter in batch_id):
        raise InvalidRequest("batch_id holds half a character (a lone surrogate): give whole ones")


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, int | float | str) else type(value).__name__


def who(actor: str | None, reason: str | None) -> dict[str, str]:
    """What a commit says of who made it and why."""
    for name, value in (("actor", actor), ("reason", reason)):
        if value is not None:
            check_text(name, value)
    return {name: value for name, value in (("actor", actor), ("reason", reason)) if value is not None}
