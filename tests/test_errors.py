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


def test_the_drawing_shows_every_kind() -> None:
    assert errors.__doc__
    for kind in KINDS:
        assert kind.__name__ in errors.__doc__
