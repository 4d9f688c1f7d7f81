"""The error tree: one root, one stable code each, and errors that cross process borders whole."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path

import pytest

from lithify import Lake, Settings, errors
from lithify.errors import LithifyError, NotFound, Unavailable, cut_here

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, LithifyError)]


def test_the_tree() -> None:
    assert {kind.__name__: kind.code for kind in KINDS} == {
        "LithifyError": "error",
        "InvalidRequest": "invalid_request",
        "NotFound": "not_found",
        "Conflict": "conflict",
        "CommitUnknown": "commit_unknown",
        "Corruption": "corruption",
        "Unavailable": "unavailable",
        "Forbidden": "forbidden",
        "Cancelled": "cancelled",
        "ComputeFailed": "compute_failed",
        "OutOfResources": "out_of_resources",
        "LimitExceeded": "limit_exceeded",
    }
    assert all(kind.__base__ in (LithifyError, errors.ComputeFailed) for kind in KINDS if kind is not LithifyError)


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in KINDS]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_pickles_whole(kind: type[LithifyError]) -> None:
    again = pickle.loads(pickle.dumps(kind("table a.t is gone: create it", table="a.t")))
    assert type(again) is kind
    assert str(again) == again.message == "table a.t is gone: create it"
    assert again.details == {"table": "a.t"}


def test_the_public_message_crosses_too() -> None:
    again = pickle.loads(
        pickle.dumps(errors.InvalidRequest("row 3: 'secret' does not fit", public="row 3 does not fit"))
    )
    assert again.public == "row 3 does not fit"
    assert again.message == "row 3: 'secret' does not fit"


def test_the_public_message_is_the_message_unless_one_is_given() -> None:
    assert errors.NotFound("table a.t does not exist").public == "table a.t does not exist"


@pytest.mark.parametrize("kind", [errors.ComputeFailed, errors.OutOfResources])
def test_what_another_program_said_is_not_made_public(kind: type[LithifyError]) -> None:
    assert "secret" not in kind("Cannot cast string 'secret' to Int64").public


def test_the_drawing_shows_every_kind() -> None:
    assert errors.__doc__
    for kind in KINDS:
        assert kind.__name__ in errors.__doc__


def test_a_notebook_shows_the_callers_line_and_none_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Lake(tmp_path / "lake") as lake, pytest.raises(NotFound) as caught:
        lake.table("shop.orders")  # the caller's line

    shown = "\n".join(caught.value._render_traceback_())
    monkeypatch.setattr(LithifyError, "all_frames", True)
    everything = "\n".join(caught.value._render_traceback_())

    assert "# the caller's line" in shown
    assert shown.endswith(f"NotFound: {caught.value}")
    assert shown.count('File "') == 1
    assert everything.count('File "') > 1
    assert "open_tables.py" in everything


def test_spark_is_told_the_message_without_what_lies_below(monkeypatch: pytest.MonkeyPatch) -> None:
    def below() -> None:
        try:
            raise OSError("disk")
        except OSError as error:
            raise Unavailable("the disk refuses: repair it") from error

    def told() -> str:
        with pytest.raises(Unavailable) as caught:
            cut_here(below)()
        return "".join(traceback.format_exception(caught.value))

    assert "in below" not in told()
    assert "OSError" not in told()
    monkeypatch.setattr(LithifyError, "all_frames", True)
    assert "in below" in told()
    assert "OSError" in told()


def test_a_setting_shows_all_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LithifyError, "all_frames", False)
    Lake(tmp_path / "lake").close()
    assert not LithifyError.all_frames
    Lake(tmp_path / "lake", settings=Settings(all_frames=True)).close()
    assert LithifyError.all_frames
