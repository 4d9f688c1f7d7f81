"""What lies about in a lake that nothing refers to."""

from __future__ import annotations

import json
from pathlib import Path

from lithify import Lake

LOGS = ("_delta_log", "_log_archive")


def unsettled(path: Path) -> list[str]:
    """What a job left behind: manifests, scratch files, folders that no commit ever named."""
    left = [str(p) for p in (path / "_lithify" / "jobs").iterdir()]
    for log in (*path.glob("*/*/base"), *path.glob("*/*/changes")):
        named = set()
        for commit in (*(log / "_delta_log").glob("*.json"), *(log / "_log_archive").glob("*.json")):
            actions = [json.loads(line) for line in commit.read_text().splitlines()]
            named |= {action["add"]["path"].partition("/")[0] for action in actions if "add" in action}
        folders = [entry for entry in log.iterdir() if entry.is_dir() and entry.name not in LOGS]
        left += [str(entry) for entry in folders if entry.name not in named]
        left += [str(entry) for entry in log.rglob("_scratch")]
    return left


def never_committed(path: Path) -> list[str]:
    """Data files that no commit has ever named."""
    left = []
    for log in (*path.glob("*/*/base"), *path.glob("*/*/changes")):
        named = set()
        for commit in (*(log / "_delta_log").glob("*.json"), *(log / "_log_archive").glob("*.json")):
            actions = [json.loads(line) for line in commit.read_text().splitlines()]
            named |= {log / action["add"]["path"] for action in actions if "add" in action}
        left += [str(file) for file in log.rglob("*.parquet") if not set(LOGS) & set(file.parts) and file not in named]
    return left


def not_needed(lake: Lake) -> list[str]:
    """Everything in a lake's folder but live files, logs, indexes and control data."""
    live: set[Path] = set()
    for name in lake.tables():
        table = lake.table(name)
        snapshot, folder = table.snapshot(), lake.path / name.replace(".", "/")
        live |= {folder / "changes" / file.path for file in snapshot.changes}
        live |= {folder / "base" / file.path for file in snapshot.base}
        live |= {folder / "index" / f"{log}.pm{end}" for log in ("base", "changes") for end in ("", ".lock")}
    found = [path for path in lake.path.glob("*/*/*/**/*") if not {*LOGS, "_lithify"} & set(path.parts)]
    left = [path for path in found if path.is_file() and path not in live]
    left += [path for path in found if path.is_dir() and not any(path.iterdir())]
    left += (lake.path / "_lithify" / "jobs").iterdir()
    left += (path for path in (lake.path / "_lithify" / "pins").iterdir() if path.suffix != ".lock")
    return sorted(str(path.relative_to(lake.path)) for path in left)
