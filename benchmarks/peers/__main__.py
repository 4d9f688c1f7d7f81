"""`python -m benchmarks.peers`: run every peer, one after the other, and print what each took."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.peers.drivers import PEERS, Peer
from benchmarks.peers.environments import NotToBeHad, python_of
from benchmarks.peers.report import Results, markdown
from benchmarks.peers.workload import Sizes, make

ROOT = Path(__file__).parents[2]
PEER_S_MAX = 3600
_ERROR = re.compile(r"[\w.]+(Error|Exception|Invalid)\b")


class Failed(Exception):
    """What a peer that did not come to its end said last."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"default all: {', '.join(p.name for p in PEERS)}")
    parser.add_argument("--rows", type=int, default=Sizes.rows, help="how many rows are loaded")
    parser.add_argument("--folder", type=Path, help="where to work; default a temporary folder")
    parser.add_argument("--environments", type=Path, default=ROOT / "build" / "peers", help="where peers are installed")
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    asked = parser.parse_args()
    if unknown := set(asked.peers) - {peer.name for peer in PEERS}:
        parser.error(f"no peer named {', '.join(sorted(unknown))}: there are {', '.join(p.name for p in PEERS)}")
    chosen = [peer for peer in PEERS if not asked.peers or peer.name in asked.peers]
    folder = Path(tempfile.mkdtemp(prefix="lithify-peers-", dir=asked.folder))
    try:
        results, missing = run(chosen, folder, Sizes(rows=asked.rows), asked.environments)
    finally:
        shutil.rmtree(folder)
    tables = markdown(results, missing)
    print(f"\n{tables}")
    if asked.json:
        asked.json.write_text(json.dumps({"rows": asked.rows, "results": results, "missing": missing}, indent=1))
    if asked.markdown:
        asked.markdown.write_text(tables)
    wrong = [f"{name}: {text}" for name, result in results.items() for text in result["wrong"]]
    for text in wrong:
        print(text, file=sys.stderr)
    sys.exit(1 if any(text.startswith("lithify") for text in wrong) else 0)


def run(peers: list[Peer], folder: Path, sizes: Sizes, environments: Path) -> tuple[Results, dict[str, str]]:
    """What each took, and why others did not take part."""
    workload = folder / "workload"
    workload.mkdir()
    print(f"{sizes.rows:,} rows, {sizes.changes} batches of {sizes.change_rows:,} changes", flush=True)
    make(workload, sizes)
    results, missing = {}, {}
    for peer in peers:
        started = time.monotonic()
        print(f"{peer.name} ...", end=" ", flush=True)
        try:
            results[peer.name] = _measured(peer, workload, folder / peer.name, environments)
        except (NotToBeHad, Failed) as error:
            missing[peer.name] = str(error)
            print(f"left out: {error}", flush=True)
        else:
            wrong = len(results[peer.name]["wrong"])
            print(f"{time.monotonic() - started:.0f} s{f', {wrong} WRONG ANSWERS' if wrong else ''}", flush=True)
        shutil.rmtree(folder / peer.name, ignore_errors=True)
    return results, missing


def _measured(peer: Peer, workload: Path, folder: Path, environments: Path) -> dict[str, object]:
    python = python_of(peer.needs, environments)
    folder.mkdir()
    target = folder.with_suffix(".json")
    command = [str(python), "-m", "benchmarks.peers.work", peer.name, str(workload), str(folder), str(target)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python), "TZ": "UTC"}
    log = folder.with_suffix(".log")
    with log.open("wb") as out:
        try:
            ended = subprocess.run(command, cwd=folder, env=environment, stdout=out, stderr=out, timeout=PEER_S_MAX)
        except subprocess.TimeoutExpired:
            raise Failed(f"not done within {PEER_S_MAX} seconds") from None
    if ended.returncode:
        said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        raise Failed(next((line for line in reversed(said) if _ERROR.match(line)), said[-1])[:300])
    found: dict[str, object] = json.loads(target.read_text())
    return found


if __name__ == "__main__":
    main()
