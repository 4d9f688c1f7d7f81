"""The folder that all processes of a torture run share, and the settings that make much happen in it."""

from __future__ import annotations

import json
import time
import traceback
from pathlib import Path
from typing import Any

from support.eager import eager_tiers

LEASE_S = 2
SETTINGS = eager_tiers(
    "torture",
    log_commits_max=100,
    log_retain_hours=1,
    fold_files_max=8,
    fold_age_s_max=2,
    fold_rows_min=50,
    minor_files_min=3,
    lease_s=LEASE_S,
    loaded_tables_max=3,
)
DAYS_AHEAD_MS = 3 * 86_400_000


class World:
    """The folder that all processes of a run share."""

    def __init__(self, root: Path) -> None:
        self.root, self.lake, self.notes = root, root / "disk" / "lake", root / "owners"
        self.stop_writers, self.end = root / "stop", root / "end"
        self.events, self.violations = root / "events.jsonl", root / "violations"

    def prepare(self) -> None:
        for folder in (self.notes, self.root / "tmp"):
            folder.mkdir(parents=True)

    def note(self, what: str, **facts: Any) -> None:
        with open(self.events, "a") as file:
            file.write(json.dumps({"at": round(time.time(), 3), "what": what, **facts}, default=str) + "\n")

    def violation(self, what: str) -> None:
        with open(self.violations, "a") as file:
            file.write(what + "\n")
        print("VIOLATION", what[:1500], flush=True)

    def surprise(self, who: str) -> None:
        """An error that is none of Lithify's: whoever meets it would call it a crash."""
        self.violation(f"{who}: {traceback.format_exc()[-1500:]}")
