"""A cycle over a lake in a bucket that is killed: rows stay, the next cycle completes the work, and nothing is left
behind.
"""

from __future__ import annotations

import gc
import random
import shutil
from pathlib import Path

import pytest

from lithify import Settings
from lithify.lake.maintenance import Maintenance
from support import maintained
from support.clocks import HOUR_MS, Clock, lake_with
from support.effort import SOAK
from support.leftovers import not_needed, unsettled
from support.maintained import LATER, State, done_by, state_of, work_to_the_end
from support.moments import cut_deletes, moments
from support.s3_servers import S3Server

pytestmark = [pytest.mark.bucket, pytest.mark.slow]

MUCH_LATER = Clock(LATER.ahead_ms + 3 * HOUR_MS)
JUDGED = 1  # others in each run; all in a soak


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("s3", ["versitygw"], indirect=True)  # which keeps objects as files
def test_a_cycle_killed_at_every_step_is_completed_by_the_next(s3: S3Server, tmp_path: Path) -> None:
    rng = random.Random(seed := random.randrange(2**32))
    settings = maintained.SETTINGS.model_copy(update={"cache_folder": tmp_path / "copies"})
    address = s3.address()
    files = s3.files_of(address)
    state = maintained.fill(f"{address}/child/lake", settings)
    found = moments(
        maintained.run_cycle,
        f"{address}/child/lake",
        settings,
        folder=files / "child",
        copies=files / "left",
        scratch=tmp_path,
        remote=True,
    )
    points = {point for moment in found for point in moment.points}
    assert points >= {"fold.commit", "minor.commit", "compact.commit", "vacuum.doomed", "vacuum.done"}
    found += cut_deletes(found, files / "cut")
    print(f"seed {seed}: {len(found)} moments")
    for moment in found if SOAK else rng.sample(found, JUDGED):
        lake = f"{address}/{moment.path.relative_to(files)}/lake"
        assert_everything_is_well(lake, moment.path / "lake", settings, state, str(moment))
        shutil.rmtree(moment.path)


def assert_everything_is_well(address: str, files: Path, settings: Settings, state: State, what: str) -> None:
    with lake_with(MUCH_LATER, address, settings) as lake:
        assert state_of(lake) == state, what
    gc.collect()  # open logs keep a snapshot, and a snapshot its files
    with lake_with(MUCH_LATER, address, settings) as lake:
        assert work_to_the_end(lake) == state, what
        assert unsettled(files) == [], what
        assert not_needed(lake, files) == [], what
        assert done_by(lake, Maintenance(lake).cycle.run()) == [], what
