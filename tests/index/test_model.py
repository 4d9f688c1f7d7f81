"""Any sequence of commits, merges and rewrites reads as a dictionary would, at every version."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lithify.files.local import LocalStorage
from lithify.index import writer
from lithify.index.block import parse
from lithify.index.block_builder import merge
from lithify.index.reader import Sidecar
from support.folders import memory_folder
from support.sidecars import TABLE_ID, State, entries, repaired, sample_entry, state, states

KINDS = st.integers(0, 11)
# New files by kind, and which of the live ones go.
COMMITS = st.tuples(st.lists(KINDS, max_size=3), st.sets(st.integers(0, 30), max_size=4))


@dataclass
class Life:
    """A sidecar and a reader that stays open, beside what both should say."""

    path: Path
    history: dict[int, State] = field(default_factory=dict)
    made: int = 0

    def start(self) -> None:
        writer.create(LocalStorage(), self.path, TABLE_ID, 0, [])
        self.history = {0: {}}
        self.sidecar = Sidecar.open(self.path, TABLE_ID)

    @property
    def now(self) -> State:
        return self.history[max(self.history)]

    def commit(self, kinds: list[int], going: set[int], together: bool = False) -> None:
        live = sorted(self.now)
        removed = {live[number] for number in going if number < len(live)}
        blocks = []
        for kind in kinds:
            self.made += 1
            # Now and then under the name of one that goes.
            name = min(removed) if removed and kind == 0 and not blocks else f"file {self.made}"
            blocks.append(sample_entry(name, kind))
        version, after = max(self.history) + 1, {name: found for name, found in self.now.items() if name not in removed}
        for block in blocks:
            after |= entries(parse(block))
        if together and blocks:
            blocks = [merge([(parse(block), None) for block in blocks])]
        writer.append(LocalStorage(), self.path, TABLE_ID, version, blocks, removed, opened=self.sidecar)
        self.history[version] = after

    def rewrite(self) -> None:
        writer.rewrite(LocalStorage(), self.path, TABLE_ID)
        self.history = {max(self.history): self.now}

    def check(self) -> None:
        self.sidecar.refresh()
        assert state(self.sidecar.view()) == self.now
        assert 0 <= self.sidecar.view().dead_share < 1

    def check_history(self) -> None:
        assert states(self.sidecar) == self.history
        assert states(Sidecar.open(self.path, TABLE_ID)) == self.history


OPERATIONS = st.one_of(
    st.tuples(st.just("commit"), COMMITS),
    st.tuples(st.just("commit together"), COMMITS),
    st.tuples(st.just("many commits"), st.lists(KINDS, min_size=16, max_size=20)),
    st.tuples(st.just("rewrite"), st.none()),
)


@settings(max_examples=20, deadline=None)
@given(st.lists(OPERATIONS, max_size=8))
def test_any_sequence_of_commits_and_rewrites_reads_as_a_dictionary(operations: list[tuple[str, object]]) -> None:
    with memory_folder() as folder:
        life = Life(folder / "x.pm")
        life.start()
        for name, how in operations:
            if name == "rewrite":
                life.rewrite()
            elif name == "many commits":
                for kind in how:  # type: ignore[attr-defined]
                    life.commit([kind], {3} if kind % 3 == 0 else set())
            else:
                life.commit(*how, together=name == "commit together")  # type: ignore[misc]
            life.check()
        life.check_history()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(KINDS, min_size=1, max_size=4), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_merging_any_blocks_keeps_what_they_say_of_live_files(kinds: list[list[int]], chance: st.randoms) -> None:
    expected: State = {}
    parts = []
    for number, of_block in enumerate(kinds):
        single = [sample_entry(f"{number}.{each}", kind) for each, kind in enumerate(of_block)]
        block = parse(merge([(parse(data), None) for data in single]))
        live = np.array([chance.random() < 0.7 for _ in of_block])
        for data, alive in zip(single, live, strict=True):
            expected |= entries(parse(data)) if alive else {}
        parts.append((block, None if live.all() else live))

    merged = parse(merge(parts))

    assert entries(merged) == expected
    assert merge([(merged, None)]) == bytes(merged.data)


def test_a_heap_with_more_bytes_than_its_ends_say_shifts_nothing_when_it_is_merged() -> None:
    block = bytearray(sample_entry("a", 0))
    offset = block.find(b"name 0 of many") - 8
    assert int.from_bytes(block[offset : offset + 8], "little") == 28
    # The upper bound loses its last two bytes, which nobody refers to from then on.
    (end,) = (at for at in range(0, len(block), 8) if block[at : at + 4] == b"\x2e\0\1\0")
    block[end + 8] = 26
    short, whole = parse(repaired(bytes(block))), parse(sample_entry("b", 0))

    merged = entries(parse(merge([(short, None), (whole, None)])))

    assert merged == entries(short) | entries(whole)


def test_a_view_of_the_past_is_the_state_of_its_time(tmp_path: Path) -> None:
    life = Life(tmp_path / "x.pm")
    life.start()
    for kind in range(25):
        life.commit([kind % 12], {0} if kind % 5 == 4 else set())
    life.sidecar.refresh()

    for version, expected in life.history.items():
        assert state(life.sidecar.view(version)) == expected
