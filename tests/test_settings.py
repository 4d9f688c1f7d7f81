"""Every setting has a help text, stands in docs/settings.md, and comes from the environment or lithify.toml."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from lithify import InvalidRequest, Settings
from lithify.settings import load_settings

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
DOCUMENTED = {
    match.group(1): match.group(2)
    for match in re.finditer(r"^\| `(\w+)` \|[^|]*\| (.*?) \|$", PAGE.read_text(), re.MULTILINE)
}


def test_every_setting_is_documented_and_nothing_else_is() -> None:
    assert list(DOCUMENTED) == list(Settings.model_fields)


@pytest.mark.parametrize("name", Settings.model_fields)
def test_the_page_says_what_the_help_says(name: str) -> None:
    help_text = Settings.model_fields[name].description
    assert help_text
    assert help_text.endswith(".")
    assert DOCUMENTED[name].replace("\\|", "|") == help_text


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lithify.toml").write_text('actor = "file"\ncheckpoint_every = 7\n')
    monkeypatch.setenv("LITHIFY_ACTOR", "environment")
    settings = load_settings()
    assert (settings.actor, settings.checkpoint_every) == ("environment", 7)
    assert load_settings(actor="call").actor == "call"


@pytest.mark.parametrize(("name", "value"), [("checkpoint_every", "1"), ("commit_attempts_max", "many")])
def test_a_bad_setting_is_named(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"LITHIFY_{name.upper()}", value)
    with pytest.raises(InvalidRequest, match=f"setting '{name}'.*LITHIFY_{name.upper()}"):
        load_settings()


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().actor = "somebody"  # type: ignore[misc]


def test_a_misspelled_setting_is_named_with_what_was_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lithify.toml").write_text("polcy_interval_s = 4\n")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidRequest, match=r"polcy_interval_s.*did you mean 'policy_interval_s'"):
        load_settings()


def test_a_broken_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lithify.toml").write_text("lake = [\n")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidRequest, match=r"lithify\.toml in this folder is no TOML"):
        load_settings()


def test_tiers_that_are_no_list_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lithify.toml").write_text('[tiers]\nname = "hourly"\n')
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidRequest, match=r"write \[\[tiers\]\]"):
        load_settings()
