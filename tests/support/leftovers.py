"""What lies about in a lake that nothing refers to."""

from __future__ import annotations

import json
from pathlib import Path


def unsettled(path: Path) -> list[str]:
    """What a job left behind: manifests, scratch files, folders that no commit ever named."""
    left = [str(p) for p in (path / "_lithify" / "jobs").iterdir()]
    for log in (*path.glob("*/*/base"), *path.glob("*/*/changes")):
        named = set()
        for commit in (log / "_delta_log").glob("*.json"):
            actions = [json.loads(line) for line in commit.read_text().splitlines()]
            named |= {action["add"]["path"].partition("/")[0] for action in actions if "add" in action}
        folders = [entry for entry in log.iterdir() if entry.is_dir() and entry.name != "_delta_log"]
        left += [str(entry) for entry in folders if entry.name not in named]
        left += [str(entry) for entry in log.rglob("_scratch")]
    return left
