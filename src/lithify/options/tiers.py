"""Tiers: how the small files of a table with a time column grow into larger ones, window by window.

A tier merges the files of one window of time (an hour, a day, …) once the window is old enough and holds enough files
below the target size. Its name becomes the origin of what it writes (`<name>-<uuid>/`), and so says later how far a
file has come: levels follow the windows' lengths, and a tier takes files of lower levels only, besides its own small
ones. Windows are counted in UTC; weeks begin on Monday and months with the calendar's. A window shorter than a day
divides the day and a longer one consists of whole days, so that no window cuts across a `_day` partition.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from lithify.errors import InvalidRequest

HOUR_S, DAY_S = 3_600, 86_400
MONTH = "month"
MONTH_S = 30 * DAY_S  # A month's length where one has to be compared with other windows.
US = 1_000_000
TARGET_BYTES_MIN, TARGET_BYTES_MAX = 2**20, 100 * 2**30
FILES_MIN_MIN, FILES_MIN_MAX = 2, 100_000
WINDOW_S_MIN, WINDOW_S_MAX = 60, 366 * DAY_S
AGE_S_MAX = 100 * 366 * DAY_S
NAME_LENGTH_MAX = 32
# Folder prefixes and kinds of maintenance that say something else than a tier.
RESERVED_NAMES = frozenset(
    {"adopt", "bulk", "cluster", "fold", "foreign", "minor", "pack", "policies", "spool", "vacuum", "write"}
)

_NAMED_WINDOWS = {"hour": HOUR_S, "day": DAY_S, "week": 7 * DAY_S, MONTH: MONTH_S}
_UNITS = {"s": 1, "m": 60, "h": HOUR_S, "d": DAY_S, "w": 7 * DAY_S}
_LENGTH = re.compile(r"([0-9]{1,9})([smhdw])")
_NAME = re.compile(r"[a-z]+")
_EPOCH = dt.date(1970, 1, 1)
_FIRST_MONDAY_S = 4 * DAY_S


@dataclass(frozen=True)
class Tier:
    """`window`: hour, day, week, month, or a length as "15m", "6h", "7d". `level` is given by `declared`.

    Whether `cron` can be followed is for the scheduler to say.
    """

    name: str
    window: str
    age_min_s: int
    files_min: int
    target_bytes: int
    cron: str
    enabled: bool = True
    level: int = 0

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_number(self, "age_min_s", 0, AGE_S_MAX)
        _check_number(self, "files_min", FILES_MIN_MIN, FILES_MIN_MAX)
        _check_number(self, "target_bytes", TARGET_BYTES_MIN, TARGET_BYTES_MAX)
        if not isinstance(self.enabled, bool):
            raise InvalidRequest(f"tier {self.name}: enabled is true or false, not {self.enabled!r}")
        if not isinstance(self.cron, str) or not self.cron.strip():
            raise InvalidRequest(f"tier {self.name}: cron is a text like '5 * * * *', not {self.cron!r}")
        window_seconds(self.window, f"tier {self.name}")

    @cached_property
    def window_s(self) -> int:
        """The window's length; a month counts as 30 days here."""
        return window_seconds(self.window, f"tier {self.name}")

    @property
    def within_day(self) -> bool:
        return self.window_s < DAY_S

    def window_of(self, time_us: int) -> Window:
        """The window that a moment, in microseconds since 1970 UTC, falls into."""
        if self.window == MONTH:
            return _month_of(time_us)
        length = self.window_s * US
        shift = 0 if self.within_day else _FIRST_MONDAY_S * US
        start = (time_us - shift) // length * length + shift
        return Window(start, start + length)


@dataclass(frozen=True, order=True)
class Window:
    """Half open, in microseconds since 1970 UTC."""

    start_us: int
    end_us: int

    def __str__(self) -> str:
        day, rest = divmod(self.start_us // US, DAY_S)
        # A long window may begin before the first date there is.
        date = dt.date.fromordinal(max(1, _EPOCH.toordinal() + day)).isoformat()
        hour, rest = divmod(rest, HOUR_S)
        return date if self.end_us - self.start_us >= DAY_S * US else f"{date} {hour:02d}:{rest // 60:02d}"


def declared(lake: Iterable[Mapping[str, Any]] = (), table: Iterable[Mapping[str, Any]] = ()) -> tuple[Tier, ...]:
    """The default tiers with the lake's and then the table's changes on top, by name. The lake may add tiers.

    Levels count from 1 in the order of window lengths.
    """
    found = {tier.name: tier for tier in DEFAULT_TIERS}
    for given in _once(lake):
        known = found.get(given["name"])
        found[given["name"]] = replace(known, **given) if known else _new(given)
    for given in _once(table):
        if given["name"] not in found:
            raise InvalidRequest(
                f"a table changes tier {given['name']}, which the lake does not have: declare it in lithify.toml or "
                f"LITHIFY_TIERS, or use one of {', '.join(found)}"
            )
        found[given["name"]] = replace(found[given["name"]], **given)
    ordered = sorted(found.values(), key=lambda tier: (tier.window_s, tier.name))
    for one, other in pairwise(tier for tier in ordered if tier.enabled):
        if one.window_s == other.window_s:
            raise InvalidRequest(
                f"tiers {one.name} and {other.name} have windows of the same length: turn one off with enabled = false"
            )
    return tuple(replace(tier, level=level) for level, tier in enumerate(ordered, 1))


def parse_declarations(value: Any) -> tuple[dict[str, Any], ...]:
    """A table's own changes to tiers, as a list or its JSON text. Which tiers the lake has is not looked at yet."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise InvalidRequest(f"tiers must be a JSON list like {_EXAMPLE}: {error}") from error
    if not isinstance(value, list | tuple):
        raise InvalidRequest(f"tiers must be a list like {_EXAMPLE}, not {type(value).__name__}")
    given = _once(value)
    for each in given:
        if "cron" in each:
            raise InvalidRequest(
                f"tier {each['name']}: cron holds for the whole lake; set it in lithify.toml or LITHIFY_TIERS"
            )
        replace(DEFAULT_TIERS[0], **each)
    return tuple(given)


TierNames = str | Iterable[str] | None


def tier_names(value: TierNames) -> tuple[str, ...]:
    """One name or several, each once; none: no tier in particular."""
    if value is None:
        return ()
    if isinstance(value, bytes | Mapping) or not isinstance(value, str | Iterable):
        raise InvalidRequest(f"tier is the name of a tier, or a list of names, not {value!r}")
    names = [value] if isinstance(value, str) else list(value)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InvalidRequest(f"tier is the name of a tier, or a list of names, not {value!r}")
    return tuple(dict.fromkeys(names))


def tier_named(tiers: Iterable[Tier], name: str, besides: Iterable[str] = ()) -> Tier:
    known = {tier.name: tier for tier in tiers}
    if name not in known:
        raise InvalidRequest(f"there is no tier {name!r}: there are {', '.join([*known, *besides])}")
    return known[name]


def how_to_turn_on(name: str) -> str:
    declaration = f'{{"name": "{name}", "enabled": true}}'
    return (
        f'for the whole lake set enabled = true below [[tiers]] name = "{name}" in lithify.toml (or '
        f"LITHIFY_TIERS='[{declaration}]'), for one table `lithify set TABLE 'tiers=[{declaration}]'`"
    )


def window_seconds(window: str, where: str) -> int:
    if not isinstance(window, str):
        raise InvalidRequest(f"{where}: window is a text like 'hour' or '6h', not {window!r}")
    if (named := _NAMED_WINDOWS.get(window)) is not None:
        return named
    found = _LENGTH.fullmatch(window)
    if found is None:
        raise InvalidRequest(
            f"{where}: window {window!r} is none of {', '.join(_NAMED_WINDOWS)} and no length like 15m, 6h or 7d"
        )
    length_s = int(found[1]) * _UNITS[found[2]]
    if not WINDOW_S_MIN <= length_s <= WINDOW_S_MAX:
        raise InvalidRequest(f"{where}: window {window!r} must be between {WINDOW_S_MIN} seconds and 366 days long")
    if (DAY_S % length_s) if length_s < DAY_S else (length_s % DAY_S):
        raise InvalidRequest(
            f"{where}: window {window!r} must divide a day evenly (15m, 6h) or be whole days (7d), because base "
            "is partitioned by day"
        )
    return length_s


_EXAMPLE = '[{"name": "hourly", "files_min": 20}]'


def _once(declarations: Iterable[Any]) -> list[dict[str, Any]]:
    """Declarations that name a tier, each one only once, and nothing that a tier does not have."""
    found: dict[str, dict[str, Any]] = {}
    for given in declarations:
        if not isinstance(given, Mapping):
            raise InvalidRequest(f"a tier is declared as {_EXAMPLE[1:-1]}, not {given!r}")
        if "name" not in given:
            raise InvalidRequest(f"the tier {dict(given)} has no name")
        _check_name(name := given["name"])
        if unknown := [key for key in given if key not in _FIELDS]:
            raise InvalidRequest(f"tier {name} has no setting {unknown[0]!r}: there are {', '.join(_FIELDS)}")
        if name in found:
            raise InvalidRequest(f"tier {name} is declared twice: put both into one declaration")
        found[name] = dict(given)
    return list(found.values())


def _new(given: Mapping[str, Any]) -> Tier:
    if missing := [key for key in _FIELDS if key not in given and key != "enabled"]:
        raise InvalidRequest(
            f"there is no tier {given['name']!r}: there are {', '.join(tier.name for tier in DEFAULT_TIERS)}; "
            f"to declare it, give {', '.join(missing)}, too"
        )
    return Tier(**given)


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
        raise InvalidRequest(
            f"tier name {name!r} must be 1 to {NAME_LENGTH_MAX} lower-case letters: it becomes the start of a folder's "
            "name"
        )
    if name in RESERVED_NAMES:
        raise InvalidRequest(f"tier name {name!r} already says something else: choose another")


def _check_number(tier: Tier, name: str, low: int, high: int) -> None:
    value = getattr(tier, name)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidRequest(f"tier {tier.name}: {name} is a whole number from {low:,} to {high:,}, not {value!r}")


def _month_of(time_us: int) -> Window:
    date = _EPOCH + dt.timedelta(days=time_us // (DAY_S * US))
    first = date.replace(day=1)
    days = 31 if first.month == 12 else (first.replace(month=first.month + 1) - first).days
    start = (first - _EPOCH).days * DAY_S * US
    return Window(start, start + days * DAY_S * US)


DEFAULT_TIERS = (
    Tier("hourly", "hour", HOUR_S, 10, 512 * 2**20, "5 * * * *"),
    Tier("daily", "day", DAY_S, 12, 2048 * 2**20, "0 3 * * *"),
    Tier("weekly", "week", 7 * DAY_S, 4, 2048 * 2**20, "0 4 * * mon", enabled=False),
    Tier("monthly", MONTH, 30 * DAY_S, 2, 2048 * 2**20, "0 5 1 * *", enabled=False),
)
_FIELDS = tuple(field.name for field in fields(Tier) if field.name != "level")
