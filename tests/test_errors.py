"""The error tree: one root, one stable code each, and errors that cross process borders whole."""

from __future__ import annotations

import pickle

import pytest

from lithify import errors
from lithify.errors import LithifyError

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
