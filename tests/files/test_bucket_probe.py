"""A server that does not keep to conditional writes is refused before anything is made there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

import pytest

from lithify import Lake, Unavailable
from lithify.files.addresses import path_of
from lithify.files.bucket.storage import BucketStorage
from support.careless_server import Flaw, careless
from support.fault_proxy import FaultProxy
from support.s3_servers import SERVERS, S3Server
from support.storage_kinds import make_trouble

ROOT = path_of("s3://bucket/lake")
REASONS: dict[Flaw, str] = {
    "ignores If-None-Match": "it ignores If-None-Match",
    "ignores If-Match": "it ignores If-Match",
    "loses metadata": "metadata of an object does not come back",
    "lists nothing": "missing from the list",
    "keeps what is deleted": "deleted are still there",
    "looks, then writes": "of 4 who create one object at a time, 4 are told that they did",
}


@pytest.fixture
def unfit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with careless(request.param) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.mark.parametrize("unfit", [""], indirect=True)
def test_the_server_of_these_tests_is_fit_without_its_flaws(unfit: S3Server) -> None:
    _storage(ROOT).probe(ROOT, rounds=3)

    assert _storage(ROOT).names(ROOT) == []


@pytest.mark.parametrize(("unfit", "reason"), REASONS.items(), indirect=["unfit"])
def test_a_server_that_is_not_fit_is_refused_with_the_reason(unfit: S3Server, reason: str) -> None:
    with pytest.raises(Unavailable, match=reason) as raised:
        Lake(str(ROOT), create=True)

    assert unfit.url in raised.value.message
    assert "docs/object-stores.md" in raised.value.message
    if "deleted" not in reason and "list" not in reason:
        assert _storage(ROOT).names(ROOT) == []


@pytest.mark.bucket
@pytest.mark.parametrize("s3", SERVERS, indirect=True)
def test_real_servers_are_fit(s3: S3Server, address: str) -> None:
    root = path_of(address)

    _storage(root).probe(root)

    assert list(_storage(root).below(root)) == []


@pytest.mark.bucket
def test_trouble_on_the_way_is_not_the_servers(proxy: FaultProxy, address: str) -> None:
    make_trouble(proxy)
    root = path_of(address)

    _storage(root).probe(root, rounds=3)

    assert list(_storage(root).below(root)) == []


@pytest.mark.bucket
def test_nor_is_a_refusal_that_breaks_off(proxy: FaultProxy, address: str) -> None:
    """Of a swap on an old tag, the last conditional put."""
    root = path_of(address)
    with proxy.counted() as requests:
        _storage(root).probe(root, rounds=0)
    cut = proxy.fail("truncate", "PUT", "swapped$", conditional=True, times=None, chance=0.5)

    _storage(root).probe(root, rounds=0)

    assert requests["PUT"] == 5
    assert cut.hits


@pytest.mark.bucket
def test_only_a_new_lake_is_probed(proxy: FaultProxy, address: str) -> None:
    Lake(address, create=True).close()

    with proxy.counted() as requests:
        Lake(address).close()

    assert requests["PUT"] == 0


def _storage(root: PurePath) -> BucketStorage:
    storage = BucketStorage()
    storage.path_guard.trust(root)
    return storage
