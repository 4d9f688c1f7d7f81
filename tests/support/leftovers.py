"""What lies about in a lake that nothing refers to."""

from __future__ import annotations

import json
from pathlib import Path


def unsettled(path: Path) -> list[str]:
    """What a job left behind: manifests, scratch files, folders in base that no commit ever named."""
    left = [str(p) for p in (path / "_lithify" / "jobs").iterdir()]
    for base in path.glob("*/*/base"):
        named = set()
        for commit in (base / "_delta_log").glob("*.json"):
            actions = [json.loads(line) for line in commit.read_text().splitlines()]
            named |= {action["add"]["path"].partition("/")[0] for action in actions if "add" in action}
        left += [str(entry) for entry in base.iterdir() if entry.name != "_delta_log" and entry.name not in named]
        left += [str(entry) for entry in base.rglob("_scratch")]
    return left
