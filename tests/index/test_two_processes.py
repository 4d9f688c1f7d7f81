"""One process commits many times, another looks on: every view is one version, whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from lithify.errors import NotFound
from lithify.files.local import LocalStorage
from lithify.index import writer
from lithify.index.block import parse
from lithify.index.reader import Sidecar, View
from support import children
from support.sidecar_writes import SEEN_EVERY, commit_all, live_at, path_of
from support.sidecars import TABLE_ID, State, entries, sample_entry, state

VERSIONS = 400


def known_entry(path: str) -> State:
    version = int(path.removeprefix("part-").removesuffix(".parquet"))
    return entries(parse(sample_entry(path, version)))


def assert_one_version(view: View) -> None:
    found = state(view)
    assert found.keys() == live_at(view.version)
    for path in found:
        assert found[path] == known_entry(path)[path]


@pytest.mark.slow
def test_a_reader_sees_whole_versions_while_another_process_commits_many_times(folder: Path) -> None:
    path = folder / "x.pm"
    writer.create(LocalStorage(), path, TABLE_ID, 0, [sample_entry(path_of(0), 0)])
    sidecar = Sidecar.open(path, TABLE_ID)
    viewed, seen = sidecar.view(), set()
    all_seen = children.semaphore()
    child = children.start(commit_all, str(path), VERSIONS, all_seen, scratch=folder)
    while sidecar.version < VERSIONS and (child.is_alive() or child.exitcode == 0):
        before = sidecar.version
        sidecar.refresh()
        assert sidecar.version >= before
        assert_one_version(sidecar.view())
        try:
            past = sidecar.view(max(0, sidecar.version - 7))
            assert_one_version(past)
        except NotFound:  # the file was written anew since
            pass
        if sidecar.version > before and sidecar.version % SEEN_EVERY == 0:
            all_seen.release()
        seen.add(sidecar.version)

    assert children.finish(child) == 0
    assert (sidecar.version, len(seen) > 10) == (VERSIONS, True)
    assert_one_version(viewed)
