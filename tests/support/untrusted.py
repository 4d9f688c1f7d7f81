"""Lakes that somebody prepared to reach out of their folder, and a folder outside that nothing may reach.

`Outside` holds what an attacker is after: Parquet and Delta files whose rows say SECRET, notes, and a whole lake of
such rows, the twin of the one that is attacked. An attack changes a lake so that one path in it, in one spelling, leads
there. `ATTACKS` has every place where a path can stand with every spelling that leads out.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import write_deltalake

from lithify import Lake, Settings

SECRET, OURS = "SECRET-ROW", "ORDINARYRW"
TABLE = "shop.t"
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("p", pa.string()), ("v", pa.string())])
SETTINGS = {"checkpoint_every": 2, "actor": "test"}
DEAD = {"host": "", "pid": 2**22 + 1, "started": "1"}


@dataclass(frozen=True)
class Outside:
    """What must stay as it is."""

    root: Path

    @property
    def parquet(self) -> Path:
        return self.root / "private.parquet"

    @property
    def delta(self) -> Path:
        return self.root / "delta"

    @property
    def twin(self) -> Path:
        return self.root / "lake"

    def state(self) -> dict[str, tuple[int, str]]:
        """Every path with its mode and content."""
        return {
            str(path.relative_to(self.root)): (
                path.lstat().st_mode,
                hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            )
            for path in sorted(self.root.rglob("*"))
        }


Apply = Callable[[Path, Outside], None]


@dataclass(frozen=True)
class Attack:
    name: str
    apply: Apply

    def __str__(self) -> str:
        return self.name


def make_outside(root: Path) -> Outside:
    outside = Outside(root)
    rows = pa.table({"id": [7], "p": ["x"], "v": [SECRET]}, COLUMNS)
    root.mkdir()
    pq.write_table(rows, outside.parquet)
    (root / "notes.json").write_text(json.dumps({"text": SECRET}))
    (root / "deep" / "folder").mkdir(parents=True)
    (root / "deep" / "folder" / "notes.txt").write_text(SECRET)
    write_deltalake(str(outside.delta), rows)
    make_lake(outside.twin, SECRET)
    return outside


def make_lake(path: Path, text: str) -> Path:
    """Rows in base and pending, checkpoints, control files of every kind, all of it old enough for vacuum."""
    with Lake(path, settings=Settings(**SETTINGS)) as lake:
        table = lake.create_table(TABLE, COLUMNS, key="id", partition_by="p")
        for number in range(3):
            table.upsert([{"id": number, "p": "x", "v": text}, {"id": number + 10, "p": "y", "v": text}])
            table.fold()
        table.upsert([{"id": 4, "p": "x", "v": text}])
        table.build_index()
        lake.maintain()
        table.vacuum(1, dry_run=False)
        table.upsert([{"id": 5, "p": "x", "v": text}])
    for folder in ("streams", "history", "leases", "pins", "pipelines"):
        (path / "_lithify" / folder).mkdir(exist_ok=True)
    (path / "_lithify" / "tokens.json").write_text(json.dumps({"format": 1, "tokens": []}))
    (path / "_lithify" / "tokens.lock").touch()
    (path / "shop/t/quarantine/old").mkdir(parents=True)
    (path / "shop/t/base/_log_archive").mkdir()
    (path / "shop/t/base/_log_archive" / f"{0:020d}.json").write_text("{}\n")
    grow_old(path)
    return path


def grow_old(path: Path) -> None:
    past = time.time() - 5 * 86_400
    for entry in (path, *path.rglob("*")):
        os.utime(entry, (past, past), follow_symlinks=False)


# -- paths in logs


def _log(lake: Path, log: str) -> Path:
    return lake / "shop/t" / log / "_delta_log"


def _commit(lake: Path, log: str, *actions: dict[str, Any]) -> None:
    folder = _log(lake, log)
    version = max(int(f.stem) for f in folder.glob("*.json")) + 1
    info = {
        "timestamp": 1_000,
        "operation": "WRITE",
        "lithify": {"operation": "fold", "seq": 6, "rows": 1, "watermark": 3, "write_id": "d" * 32},
    }
    lines = [{"commitInfo": info}, *actions]
    (folder / f"{version:020d}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _add(path: str, size: int, log: str, **more: Any) -> dict[str, Any]:
    partition = {"p": "x"} if log == "base" else {"_seq": "6", "_op": "upsert"}
    stats = {"numRecords": 1, "minValues": {"id": 7}, "maxValues": {"id": 7}, "nullCount": {"id": 0}}
    return {
        "add": {
            "path": path,
            "partitionValues": partition,
            "size": size,
            "modificationTime": 1_000,
            "dataChange": True,
            "stats": json.dumps(stats),
            **more,
        }
    }


def _ups(lake: Path, log: str, target: Path) -> str:
    return os.path.relpath(target, lake / "shop/t" / log)


SPELLINGS: dict[str, Callable[[str, Path], str]] = {
    "dots": lambda up, target: up,
    "dots after a folder": lambda up, target: f"fold-{'a' * 32}/../{up}",
    "dots after a dot": lambda up, target: f"./{up}",
    "escaped dots": lambda up, target: up.replace("..", "%2e%2E"),
    "escaped slashes": lambda up, target: quote(up, safe=""),
    "from the root": lambda up, target: str(target),
    "escaped root": lambda up, target: f"%2F{str(target)[1:]}",
    "address": lambda up, target: target.as_uri(),
    "short address": lambda up, target: f"file:{target}",
    "escaped address": lambda up, target: quote(target.as_uri(), safe=""),
}


def _add_attack(log: str, spell: Callable[[str, Path], str]) -> Apply:
    def apply(lake: Path, outside: Outside) -> None:
        path = spell(_ups(lake, log, outside.parquet), outside.parquet)
        _commit(lake, log, _add(path, outside.parquet.stat().st_size, log))

    return apply


def _remove_attack(log: str, spell: Callable[[str, Path], str]) -> Apply:
    """Vacuum deletes what commits of ours removed."""

    def apply(lake: Path, outside: Outside) -> None:
        path = spell(_ups(lake, log, outside.parquet), outside.parquet)
        _commit(lake, log, {"remove": {"path": path, "deletionTimestamp": 1_000, "dataChange": True}})

    return apply


def _deletion_vector(lake: Path, outside: Outside) -> None:
    vector = {"storageType": "p", "pathOrInlineDv": outside.parquet.as_uri(), "sizeInBytes": 10, "cardinality": 1}
    live = next(path for path in (lake / "shop/t/base").rglob("*.parquet") if "_delta_log" not in path.parts)
    path = live.relative_to(lake / "shop/t/base").as_posix()
    _commit(lake, "base", _add(path, live.stat().st_size, "base", deletionVector=vector))


def _set_metadata(lake: Path, log: str, change: Callable[[dict[str, Any]], None]) -> None:
    """As an attacker does who has the whole log in hand: checkpoints go, so that the commits count."""
    folder = _log(lake, log)
    for name in ("*.checkpoint.parquet", "_last_checkpoint"):
        for path in folder.glob(name):
            path.unlink()
    first = folder / f"{0:020d}.json"
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            change(line["metaData"])
    first.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _base_path_attack(spell: Callable[[str, Path], str], part: str = "delta") -> Apply:
    def apply(lake: Path, outside: Outside) -> None:
        target = outside.root / part
        value = spell(os.path.relpath(target, lake), target)
        _set_metadata(lake, "changes", lambda found: found["configuration"].update({"lithify.base_path": value}))

    return apply


def _table_id(lake: Path, outside: Outside) -> None:
    """Where indexes have a folder of their own, the id is a folder's name there."""
    _set_metadata(lake, "changes", lambda found: found.update(id=f"../{outside.root.name}/deep"))


def _hint(lake: Path, outside: Outside) -> None:
    for log in ("base", "changes"):
        hint = {"version": 4, "size": 1, "parts": 1, "path": outside.parquet.as_uri(), "sidecarFiles": ["../../x"]}
        (_log(lake, log) / "_last_checkpoint").write_text(json.dumps(hint))


def _sidecar(kind: str) -> Apply:
    """A checkpoint of the newer kind, whose actions lie in a file of another table's log."""

    def apply(lake: Path, outside: Outside) -> None:
        log = _log(lake, "base")
        old = max(log.glob("*.checkpoint.parquet"))
        actions = pq.read_table(old)
        pq.write_table(actions.filter(pc.is_valid(actions["add"])), outside.root / "actions.parquet")
        target = outside.root / "actions.parquet"
        sidecar = {"path": target.as_uri(), "sizeInBytes": target.stat().st_size, "modificationTime": 0}
        if kind == "parquet":
            number = actions.column_names.index("sidecar")
            column = pa.array([sidecar] + [None] * (actions.num_rows - 1), actions.schema.field(number).type)
            pq.write_table(actions.set_column(number, "sidecar", column), old)
            return
        rows = [row for row in actions.to_pylist() if row["metaData"] or row["protocol"]]
        lines = [{name: value for name, value in row.items() if value is not None} for row in rows]
        features = {"minReaderVersion": 3, "minWriterVersion": 7}
        features |= {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}  # type: ignore[dict-item]
        lines = [line for line in lines if "protocol" not in line]
        lines += [{"protocol": features}, {"checkpointMetadata": {"version": int(old.name[:20])}}, {"sidecar": sidecar}]
        old.unlink()
        (log / f"{old.name[:20]}.checkpoint.{'0' * 8}-0000-0000-0000-{'0' * 12}.json").write_text(
            "".join(json.dumps(line, default=str) + "\n" for line in lines)
        )

    return apply


# -- control files


def _manifest(**fields: Any) -> Apply:
    def apply(lake: Path, outside: Outside) -> None:
        up = os.path.relpath(outside.root / "notes", lake / "_lithify/jobs")
        number = "a" * 32
        job = {
            "id": number,
            "kind": "fold",
            "table": TABLE,
            "log": "base",
            "folder": f"fold-{number}",
            "owner": {**DEAD, "host": os.uname().nodename},
            "created_ms": 0,
            "inputs": [],
            "state": "writing",
        }
        job.update({name: value.format(up=up, root=outside.root) for name, value in fields.items()})
        (lake / "_lithify/jobs" / f"{number}.json").write_text(json.dumps(job))
        if not fields:
            (lake / "shop/t/base" / f"fold-{number}").symlink_to(outside.root)

    return apply


def _pin(lake: Path, outside: Outside) -> None:
    up = os.path.relpath(outside.root / "notes", lake / "_lithify/pins")
    pin = {
        "id": f"x/../{up}",
        "owner": {**DEAD, "host": os.uname().nodename},
        "table": TABLE,
        "table_id": "x",
        "seq": 1,
        "changes_version": 1,
        "base_version": 1,
        "created_ms": 0,
        "renewed_ms": 0,
        "changes": [],
        "base": [up],
    }
    (lake / "_lithify/pins" / f"{TABLE}-x").mkdir()
    (lake / "_lithify/pins" / f"{TABLE}-{'b' * 32}.json").write_text(json.dumps(pin))


# -- links


LINKED = (
    "shop",
    "shop/t",
    "shop/t/changes",
    "shop/t/base",
    "shop/t/index",
    "shop/t/quarantine",
    "shop/t/changes/_delta_log",
    "shop/t/base/_delta_log",
    "shop/t/base/_log_archive",
    "shop/t/base/_delta_log/_last_checkpoint",
    "shop/t/index/base.pm",
    "_lithify",
    "_lithify/lake.json",
    "_lithify/jobs",
    "_lithify/leases",
    "_lithify/pins",
    "_lithify/history",
    "_lithify/history/jobs.jsonl",
    "_lithify/streams",
    "_lithify/catalog.lock",
    "_lithify/tokens.json",
    "_lithify/tokens.lock",
)


def _link(name: str) -> Apply:
    """The same part of the twin, in place of this lake's own."""

    def apply(lake: Path, outside: Outside) -> None:
        path = lake / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        target = outside.twin / name
        assert target.exists(), f"the twin has no {name}"
        path.symlink_to(target)

    return apply


def _linked_log_file(log: str, pattern: str) -> Apply:
    def apply(lake: Path, outside: Outside) -> None:
        path = max(_log(lake, log).glob(pattern))
        path.unlink()
        path.symlink_to(_log(outside.twin, log) / path.name)

    return apply


def _linked_data(lake: Path, outside: Outside) -> None:
    (lake / "shop/t/base/link.parquet").symlink_to(outside.parquet)
    _commit(lake, "base", _add("link.parquet", outside.parquet.stat().st_size, "base"))


def _linked_data_folder(lake: Path, outside: Outside) -> None:
    folder = f"fold-{'c' * 32}"
    (lake / "shop/t/base" / folder).symlink_to(outside.root)
    _commit(lake, "base", _add(f"{folder}/private.parquet", outside.parquet.stat().st_size, "base"))


def _linked_partition(lake: Path, outside: Outside) -> None:
    folder = f"fold-{'c' * 32}"
    (lake / "shop/t/base" / folder).mkdir()
    (lake / "shop/t/base" / folder / "p=x").symlink_to(outside.root)
    _commit(lake, "base", _add(f"{folder}/p=x/private.parquet", outside.parquet.stat().st_size, "base"))


def _linked_change(lake: Path, outside: Outside) -> None:
    name = f"write-{'e' * 32}.parquet"
    (lake / "shop/t/changes" / name).symlink_to(outside.parquet)
    _commit(lake, "changes", _add(name, outside.parquet.stat().st_size, "changes"))


def _links_to_delete(lake: Path, outside: Outside) -> None:
    """Vacuum, drop and clean-up of staged files come across them."""
    for folder in ("base", "changes"):
        job = lake / "shop/t" / folder / f"fold-{'f' * 32}"
        job.mkdir()
        (job / "inner").symlink_to(outside.root)
        (lake / "shop/t" / folder / f"write-{'f' * 32}.parquet").symlink_to(outside.parquet)
        (lake / "shop/t" / folder / f"daily-{'f' * 32}").symlink_to(outside.root)
        (lake / "shop/t" / folder / "other").symlink_to(outside.root)


def _staged_links(lake: Path, outside: Outside) -> None:
    for name in ("scan-0", "feed-0", f"overlay-{os.uname().nodename}-{DEAD['pid']}-1-1", ".base.pm.1.1"):
        (lake / "shop/t/index" / name).symlink_to(outside.root)


def _attacks() -> Iterator[Attack]:
    for log in ("base", "changes"):
        for how, spell in SPELLINGS.items():
            yield Attack(f"{log} adds by {how}", _add_attack(log, spell))
    for how in ("dots", "escaped dots", "from the root", "address"):
        yield Attack(f"base removed by {how}", _remove_attack("base", SPELLINGS[how]))
    for how in ("dots", "from the root", "address"):
        yield Attack(f"base_path by {how}", _base_path_attack(SPELLINGS[how]))
    yield Attack("base_path of the twin", _base_path_attack(SPELLINGS["from the root"], "lake/shop/t/base"))
    yield Attack("deletion vector", _deletion_vector)
    yield Attack("table id", _table_id)
    yield Attack("checkpoint hint", _hint)
    yield Attack("checkpoint sidecar", _sidecar("parquet"))
    yield Attack("checkpoint sidecar in json", _sidecar("json"))
    yield Attack("manifest", _manifest())
    yield Attack("manifest by id", _manifest(id="{up}"))
    yield Attack("manifest by folder", _manifest(folder="../../../{root}"))
    yield Attack("manifest by table", _manifest(table="../{up}"))
    yield Attack("pin by id", _pin)
    for name in LINKED:
        yield Attack(f"link {name}", _link(name))
    for log in ("base", "changes"):
        for pattern in ("0*[0-9].json", "*.checkpoint.parquet"):
            yield Attack(f"link {log} {pattern}", _linked_log_file(log, pattern))
    for attack in (
        _linked_data,
        _linked_data_folder,
        _linked_partition,
        _linked_change,
        _links_to_delete,
        _staged_links,
    ):
        yield Attack(attack.__name__.strip("_").replace("_", " "), attack)


ATTACKS = list(_attacks())
