"""A process is killed at every step of what it does to a lake in a bucket; what was acknowledged is there once, and the
next operation works.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from support import crashes
from support.effort import SOAK
from support.folders import copied
from support.moments import cut_deletes, moments
from support.s3_servers import S3Server

pytestmark = [pytest.mark.bucket, pytest.mark.slow]

# Some moments of some scenarios, others in each run; all of them in a soak.
CASES: list[str | int] = [*crashes.SCENARIOS] if SOAK else [1, 2, 3, 4]
JUDGED = 2


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("s3", ["versitygw"], indirect=True)  # which keeps objects as files
@pytest.mark.parametrize("case", CASES)
def test_a_kill_at_every_step_loses_nothing(case: str | int, s3: S3Server, tmp_path: Path) -> None:
    rng = random.Random(seed := random.randrange(2**32))
    name = case if isinstance(case, str) else rng.choice([*crashes.SCENARIOS])
    print(f"seed {seed}: {name}")
    settings = crashes.SETTINGS.model_copy(update={"cache_folder": tmp_path / "copies"})
    address = s3.address()
    files = s3.files_of(address)
    crashes.prepare(crashes.SCENARIOS[name], f"{address}/child/lake", settings)
    copied(files / "child", files / "rehearsal")
    states = crashes.states_of_run(name, f"{address}/rehearsal/lake", settings=settings)
    found = moments(
        crashes.run,
        name,
        f"{address}/child/lake",
        str(files / "child" / "acknowledged"),
        settings,
        folder=files / "child",
        copies=files / "left",
        scratch=tmp_path,
        remote=True,
    )
    assert sum(point.startswith("store.") for moment in found for point in moment.points) > 3
    found += cut_deletes(found, files / "cut")
    print(f"{len(found)} moments")
    for moment in found if SOAK else rng.sample(found, JUDGED):
        lake = f"{address}/{moment.path.relative_to(files)}/lake"
        told, what = moment.path / "acknowledged", f"{name} {moment}"
        crashes.assert_nothing_is_lost(lake, moment.path / "lake", told, states, what, settings)
        shutil.rmtree(moment.path)
