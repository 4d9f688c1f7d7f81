"""What lies about in a lake that nothing refers to."""

from __future__ import annotations

import json
from pathlib import Path

from lithify import Lake

LOGS = ("_delta_log", "_log_archive")


def unsettled(path: Path) -> list[str]:
    """What a job left behind: manifests, scratch files, folders that no commit ever named."""
    # A manifest that was cut off within its first write waits until it is older than that can take.
    torn = (p for p in (path / "_lithify" / "jobs").glob(".*") if not p.read_bytes())
    left = [str(p) for p in {*(path / "_lithify" / "jobs").glob("*")} - {*torn}]
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


def cut_off_tags(path: Path) -> list[str]:
    """What no tag reads from."""
    left = []
    for folder in (path / "_lithify" / "tags").glob("*/*"):
        tag = folder / "tag.json"
        own = json.loads(tag.read_text()).get("folder", "") if tag.exists() else "-"
        if own:
            left += [str(entry) for entry in folder.iterdir() if entry.name not in (tag.name, own)]
    return left


def not_needed(lake: Lake, files: Path | None = None) -> list[str]:
    """Everything in a lake's folder but live files, logs, indexes and control data. `files`: where that can be looked
    at, of a lake in a bucket.
    """
    root, live = files or Path(lake.path), set[Path]()
    for name in lake.tables():
        table = lake.table(name)
        snapshot, folder = table.snapshot(), root / name.replace(".", "/")
        live |= {folder / "changes" / file.path for file in (*snapshot.changes, *snapshot.remembered)}
        live |= {folder / "base" / file.path for file in snapshot.base}
        live |= {folder / "index" / f"{log}.pm{end}" for log in ("base", "changes") for end in ("", ".lock")}
    found = [path for path in root.glob("*/*/*/**/*") if not {*LOGS, "_lithify"} & set(path.parts)]
    left = [path for path in found if path.is_file() and path not in live]
    left += [path for path in found if path.is_dir() and not any(path.iterdir())]
    control = root / "_lithify"
    left += (path for name in ("jobs", "doomed") for path in (control / name).glob("*"))
    left += (path for path in (control / "pins").glob("*") if path.suffix not in (".lock", ".vacuumed"))
    return sorted(str(path.relative_to(root)) for path in left)
