"""A short run of the fuzzer; `make fuzz` makes a long one."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.golden_sidecars import GOLDEN, NAMES

TARGET = Path(__file__).with_name("fuzz_reader.py")


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed on this platform")
@pytest.mark.slow
def test_a_short_run_of_the_fuzzer_finds_nothing(folder: Path) -> None:
    corpus = folder / "corpus"
    corpus.mkdir()
    for name in NAMES:
        shutil.copy(GOLDEN / f"{name}.pm", corpus)

    done = subprocess.run(
        [sys.executable, str(TARGET), "-runs=2000", "-max_total_time=20", f"-artifact_prefix={folder}/", str(corpus)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=folder,
    )

    assert done.returncode == 0, done.stderr[-4000:]
    assert "Done" in done.stderr
