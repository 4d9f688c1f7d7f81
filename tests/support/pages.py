"""Examples of the documentation, found and run as a reader would type them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"


@dataclass(frozen=True)
class Example:
    """A block of a page, in `python` or `bash`."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(DOCS.parent)}:{self.line}"


def examples(page: Path) -> Iterator[tuple[str, Example]]:
    """Each with the heading (##) that it stands under."""
    text, heading = page.read_text(), ""
    for found in re.finditer(
        r"^## (?P<heading>[^\n]*)$|^```(?P<language>python|bash)\n(?P<block>.*?)^```", text, re.M | re.S
    ):
        if found["heading"] is not None:
            heading = found["heading"]
        else:
            line = text.count("\n", 0, found.start("block"))
            yield heading, Example(page, line, found["language"], found["block"])


def run(blocks: Sequence[Example], folder: Path, names: dict[str, Any], environment: Mapping[str, str] = {}) -> str:
    """Run them one after the other in `folder`, where this process is, too: Python here with `names`, commands in a
    shell that remembers what was exported. Answers with what the commands printed.
    """
    exported = folder / ".exported"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    said = []
    for block in blocks:
        if block.language == "python":
            exec(compile("\n" * block.line + block.text, str(block.page), "exec"), names)
            continue
        shell = f"[ ! -f {exported} ] || . {exported}\n{block.text}\nexport -p > {exported}\n"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", shell],
            cwd=folder,
            env={**os.environ, "PATH": path, **environment},
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
        said.append(done.stdout)
    return "".join(said)
