"""Tiers: windows in UTC, levels by length, and declarations that are checked before anything is done with them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lithify import InvalidRequest, Settings
from lithify.core.names import is_job_folder
from lithify.options.policy import policy_of
from lithify.options.table_options import parse, stored
from lithify.options.tiers import DEFAULT_TIERS, RESERVED_NAMES, Tier, Window, declared, parse_declarations, tier_named
from lithify.settings import load_settings

MB = 2**20
SIX_HOURS = {
    "name": "sixhourly",
    "window": "6h",
    "age_min_s": 7200,
    "files_min": 8,
    "target_bytes": 1024 * MB,
    "cron": "15 */6 * * *",
}


def moment_us(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp()) * 1_000_000


def tier(**values: Any) -> Tier:
    return Tier(
        **({"name": "some", "window": "1h", "age_min_s": 0, "files_min": 2, "target_bytes": MB, "cron": "* * * * *"})
        | values
    )


def test_the_defaults() -> None:
    shown = [
        (t.name, t.window_s, t.age_min_s, t.files_min, t.target_bytes // MB, t.cron, t.enabled) for t in declared()
    ]
    assert shown == [
        ("hourly", 3600, 3600, 10, 512, "5 * * * *", True),
        ("daily", 86400, 86400, 12, 2048, "0 3 * * *", True),
        ("weekly", 7 * 86400, 7 * 86400, 4, 2048, "0 4 * * mon", False),
        ("monthly", 30 * 86400, 30 * 86400, 2, 2048, "0 5 1 * *", False),
    ]


def test_levels_follow_window_lengths() -> None:
    found = declared([SIX_HOURS])
    assert [(t.level, t.name) for t in found] == [
        (1, "hourly"),
        (2, "sixhourly"),
        (3, "daily"),
        (4, "weekly"),
        (5, "monthly"),
    ]


def test_a_declaration_changes_a_tier_by_name_and_leaves_the_rest_of_it() -> None:
    found = {t.name: t for t in declared([{"name": "weekly", "enabled": True}], [{"name": "weekly", "files_min": 7}])}
    assert (found["weekly"].enabled, found["weekly"].files_min, found["weekly"].window) == (True, 7, "week")
    assert found["hourly"] == declared()[0]


@pytest.mark.parametrize(
    ("window", "time", "start", "end"),
    [
        ("hour", "2026-11-15T09:59:59", "2026-11-15T09:00:00", "2026-11-15T10:00:00"),
        ("15m", "2026-11-15T09:15:00", "2026-11-15T09:15:00", "2026-11-15T09:30:00"),
        ("6h", "2026-11-15T09:59:59", "2026-11-15T06:00:00", "2026-11-15T12:00:00"),
        ("day", "2026-11-15T00:00:00", "2026-11-15T00:00:00", "2026-11-16T00:00:00"),
        ("week", "2026-11-15T23:59:59", "2026-11-09T00:00:00", "2026-11-16T00:00:00"),
        ("7d", "2026-11-16T00:00:00", "2026-11-16T00:00:00", "2026-11-23T00:00:00"),
        ("month", "2026-11-15T09:00:00", "2026-11-01T00:00:00", "2026-12-01T00:00:00"),
        ("month", "2028-02-29T09:00:00", "2028-02-01T00:00:00", "2028-03-01T00:00:00"),
        ("month", "2026-12-31T23:00:00", "2026-12-01T00:00:00", "2027-01-01T00:00:00"),
        ("hour", "1969-12-31T23:30:00", "1969-12-31T23:00:00", "1970-01-01T00:00:00"),
    ],
)
def test_windows(window: str, time: str, start: str, end: str) -> None:
    assert tier(window=window).window_of(moment_us(time)) == Window(moment_us(start), moment_us(end))


@given(
    window=st.sampled_from(["60s", "15m", "hour", "8h", "day", "3d", "week", "30d", "month"]),
    time=st.datetimes(dt.datetime.min, dt.datetime.max, timezones=st.just(dt.UTC)),
)
def test_every_moment_has_one_window_that_no_day_is_cut_by(window: str, time: dt.datetime) -> None:
    time_us = (time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    some = tier(window=window)
    found = some.window_of(time_us)
    day_us = 86_400_000_000
    assert found.start_us <= time_us < found.end_us
    assert some.window_of(found.start_us) == some.window_of(found.end_us - 1) == found
    if some.within_day:
        assert found.start_us // day_us == (found.end_us - 1) // day_us
    else:
        assert found.start_us % day_us == found.end_us % day_us == 0
    assert str(found)[:4].isdigit()


def test_a_window_is_shown_by_its_start() -> None:
    hourly, daily, weekly, _ = declared()
    time_us = moment_us("2026-11-15T09:30:00")
    assert [str(t.window_of(time_us)) for t in (hourly, daily, weekly)] == [
        "2026-11-15 09:00",
        "2026-11-15",
        "2026-11-09",
    ]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"age_min_s": -1}, r"tier some: age_min_s is a whole number from 0 .*, not -1"),
        ({"age_min_s": 1.5}, "age_min_s is a whole number"),
        ({"files_min": 1}, "files_min is a whole number from 2 "),
        ({"files_min": True}, "files_min is a whole number"),
        ({"files_min": "10"}, "files_min is a whole number"),
        ({"target_bytes": MB - 1}, "target_bytes is a whole number from 1,048,576 to 107,374,182,400"),
        ({"target_bytes": 100 * 2**30 + 1}, "target_bytes is a whole number"),
        ({"window": "0h"}, "window '0h' must be between"),
        ({"window": "59s"}, "window '59s' must be between"),
        ({"window": "400d"}, "window '400d' must be between"),
        ({"window": "7h"}, "window '7h' must divide a day"),
        ({"window": "25h"}, "window '25h' must divide a day"),
        ({"window": "fortnight"}, "none of hour, day, week, month and no length"),
        ({"window": "-1h"}, "no length"),
        ({"window": 3600}, "window is a text"),
        ({"cron": " "}, "cron is a text"),
        ({"cron": None}, "cron is a text"),
        ({"enabled": "yes"}, "enabled is true or false"),
        ({"name": "Hourly"}, "lower-case letters"),
        ({"name": "six_hourly"}, "lower-case letters"),
        ({"name": ""}, "lower-case letters"),
        ({"name": "a/../b"}, "lower-case letters"),
        ({"name": 7}, "lower-case letters"),
    ],
)
def test_an_impossible_tier_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        tier(**values)


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_a_tier_is_not_named_like_another_origin(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"tier name '{name}' already says"):
        declared([SIX_HOURS | {"name": name}])


@pytest.mark.parametrize("name", ["hourly", "a", "z" * 32])
def test_a_name_makes_a_job_folder(name: str) -> None:
    assert is_job_folder(f"{tier(name=name).name}-{'0' * 32}")


@pytest.mark.parametrize(
    ("declarations", "message"),
    [
        (
            [{"name": "hurly", "files_min": 3}],
            "no tier 'hurly': there are hourly, daily, weekly, monthly; to declare it",
        ),
        ([{"name": "hourly"}, {"name": "hourly"}], "hourly is declared twice"),
        ([{"files_min": 3}], "has no name"),
        (["hourly"], "a tier is declared as"),
        ([{"name": "hourly", "min_files": 3}], "no setting 'min_files': there are name, window"),
        ([{"name": "hourly", "level": 3}], "no setting 'level'"),
        ([SIX_HOURS | {"window": "1h"}], "hourly and sixhourly have windows of the same length"),
        ([{"name": "hourly", "age_min_s": -5}], "tier hourly: age_min_s"),
    ],
)
def test_a_bad_declaration_is_refused(declarations: list[Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        declared(declarations)


def test_two_tiers_of_one_length_are_fine_when_one_is_off() -> None:
    found = declared([SIX_HOURS | {"window": "1h"}, {"name": "hourly", "enabled": False}])
    assert [t.name for t in found if t.enabled] == ["sixhourly", "daily"]


def test_an_unknown_tier_is_answered_with_the_known_ones() -> None:
    assert tier_named(declared(), "daily").window == "day"
    with pytest.raises(InvalidRequest, match="no tier 'yearly': there are hourly, daily, weekly, monthly, pack"):
        tier_named(declared(), "yearly", besides=("pack",))


def test_tiers_come_from_the_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lithify.toml").write_text('[[tiers]]\nname = "weekly"\nenabled = true\n')
    assert [t.name for t in policy_of(load_settings()).tiers if t.enabled] == ["hourly", "daily", "weekly"]
    monkeypatch.setenv("LITHIFY_TIERS", '[{"name": "daily", "files_min": 3}]')
    found = {t.name: t for t in policy_of(load_settings()).tiers}
    assert (found["daily"].files_min, found["weekly"].enabled) == (3, False)


def test_tiers_that_are_no_json_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITHIFY_TIERS", "hourly")
    with pytest.raises(InvalidRequest, match="tiers"):
        load_settings()


def test_a_table_changes_the_lakes_tiers() -> None:
    settings = Settings(tiers=({"name": "hourly", "files_min": 20}, SIX_HOURS))
    value = parse("tiers", '[{"name": "hourly", "target_bytes": 1048576}, {"name": "sixhourly", "enabled": false}]')
    found = {t.name: t for t in policy_of(settings, stored({"tiers": value})).tiers}
    assert (found["hourly"].files_min, found["hourly"].target_bytes) == (20, MB)
    assert not found["sixhourly"].enabled
    with pytest.raises(InvalidRequest, match="a table changes tier sixhourly, which the lake does not have"):
        policy_of(Settings(), stored({"tiers": value}))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("hourly", "must be a JSON list"),
        ("{}", "must be a list"),
        ([{"name": "hourly", "cron": "* * * * *"}], "cron holds for the whole lake"),
        ([{"name": "hourly", "files_min": 0}], "files_min is a whole number"),
        ([{"name": "own", "window": "0h"}], "window '0h'"),
        ([{"name": "hourly"}, {"name": "hourly"}], "declared twice"),
    ],
)
def test_a_bad_change_of_a_table_is_refused_when_it_is_made(value: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse("tiers", value)


def test_a_tables_changes_are_kept_as_they_were_given() -> None:
    given = [{"name": "hourly", "files_min": 20}]
    assert parse_declarations(given) == parse_declarations('[{"name": "hourly", "files_min": 20}]') == tuple(given)
    assert DEFAULT_TIERS[0].files_min == 10


@pytest.mark.parametrize("name", ["policies", "vacuum"])
def test_a_tier_is_not_named_like_other_maintenance(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"tier name '{name}' already says"):
        tier(name=name)
