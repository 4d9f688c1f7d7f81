"""What a log states of the values in files, compared column by column: so a value is found that is too short for bytes.

Pure. A commit or a checkpoint names for each file the least and the greatest value of columns, and the values that it
is partitioned by.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lithify.core.json_out import parsed
from lithify.erasure.needles import Needle, text_of

_STATED = ("minValues", "maxValues", "partitionValues", "partitionValues_parsed")


class StatedValues:
    """The needles, to be asked for by column."""

    def __init__(self, needles: Iterable[Needle]) -> None:
        self._known: dict[tuple[str, str], Needle] = {}
        for needle in needles:
            self._known[needle.column, _canonical(needle.text)] = needle

    def found(self, action: Any) -> Iterator[Needle]:
        """In an action of a log, or anything with actions in it."""
        match action:
            case Mapping():
                for name, value in action.items():
                    if name in _STATED and isinstance(value, Mapping | list):
                        yield from self._in_values(value)
                    elif name == "stats" and isinstance(value, str):
                        yield from self.found(parsed(value))
                    else:
                        yield from self.found(value)
            case list() | tuple():
                for value in action:
                    yield from self.found(value)

    def _in_values(self, values: Any) -> Iterator[Needle]:
        # Arrow tells a map as pairs.
        for column, value in dict(values).items():
            for leaf in _leaves(value):
                if (needle := self._known.get((column, _canonical(text_of(leaf))))) is not None:
                    yield needle


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaves(inner)
    elif value is not None:
        yield value


def _canonical(text: str) -> str:
    """Times to the millisecond and in UTC, which is how bounds have them; numbers without zeros at their end."""
    try:
        moment = dt.datetime.fromisoformat(text) if len(text) >= 16 else None
    except ValueError:
        moment = None
    if moment is not None:
        moment = moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment.astimezone(dt.UTC)
        return moment.isoformat(timespec="milliseconds")
    plain = text.removeprefix("-").replace(".", "", 1)
    return text.rstrip("0").rstrip(".") if "." in text and plain.isdigit() else text
