"""Backups of a lake: create, list, verify, restore, remove."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from lithify.cli.command import HANDLED, Commands, Session, table_names
from lithify.cli.output import Column, long_text
from lithify.cli.values import bytes_cell, count_cell, human_bytes, human_seconds
from lithify.core.wording import plural
from lithify.errors import InvalidRequest

command = Commands("Maintenance", "backup", "Copies of the lake elsewhere: create, list, verify, restore, remove.")

PlaceArgument = Annotated[
    str, typer.Argument(metavar="PLACE", help="Where backups of this lake lie: a folder, or s3://bucket/prefix.")
]
IdOption = Annotated[str | None, typer.Option("--id", metavar="ID", help="Which backup. Default: the newest.")]
TablesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--table", metavar="NAME", help="Only this table; repeat it. Default: all.", autocompletion=table_names
    ),
]


@command("create", local=True)
def create(session: Session, place: PlaceArgument, tables: TablesOption = None) -> None:
    """Copy what the lake holds now. Readers and writers go on; what an earlier backup has is not copied again.

    Each table is saved as it is when its turn comes. Nothing in PLACE is linked to the lake.

    Examples:
        lithify backup create /mnt/backups/shop --lake ./lake
        lithify backup create s3://backups/shop --table shop.orders
    """
    from lithify.backup.create import create_backup

    with session.local_lake() as lake, session.out.working("saving") as report:
        done = create_backup(lake, place, tables, progress=report)
    text = f"backup {done.id}: {plural(done.tables, 'table')}, {human_bytes(done.bytes)}"
    copied = f"{plural(done.files_copied, 'new file')}, {human_bytes(done.bytes_copied)}"
    document = asdict(done)
    session.out.message(f"{text}; {copied}, {human_seconds(done.seconds)}", document)
    session.out.problems([f"{name} is left out: {reason}" for name, reason in done.left_out.items()])
    if done.left_out:
        raise typer.Exit(HANDLED)


@command("list", local=True)
def list_backups(session: Session, place: PlaceArgument) -> None:
    """List the backups that lie there, oldest first.

    Examples:
        lithify backup list /mnt/backups/shop
    """
    from lithify.backup.place import BackupPlace
    from lithify.files.user_files import named_place

    found = BackupPlace(named_place(place)).manifests()
    rows: list[dict[str, Any]] = [
        {
            "id": each.id,
            "created": each.created,
            "lake": each.lake,
            "tables": len(each.tables),
            "rows": sum(table.rows for table in each.tables.values()),
            "bytes": each.size_bytes,
            "left_out": dict(each.left_out),
        }
        for each in found
    ]
    columns = (
        Column("id", "backup", style="bold"),
        Column("tables", "tables", count_cell, right=True),
        Column("rows", "rows in base", count_cell, right=True),
        Column("bytes", "size", bytes_cell, right=True),
        Column("lake", "of", long_text, wrap=True),
    )
    session.out.listing(columns, rows, {"backups": rows}, empty="no backup was finished there yet")


@command("verify", local=True)
def verify(session: Session, place: PlaceArgument, id: IdOption = None) -> None:
    """Read all of a backup, and compare checksums. Exit code 1 if anything is not what was saved.

    Examples:
        lithify backup verify /mnt/backups/shop
    """
    from lithify.backup.restore import verify_backup

    with session.out.working("comparing checksums") as report:
        manifest, problems = verify_backup(place, id, progress=report)
    whole = "is whole" if not problems else f"has {plural(len(problems), 'bad file')}"
    document = {"id": manifest.id, "bytes": manifest.size_bytes, "problems": problems}
    session.out.message(
        f"backup {manifest.id} {whole}: {human_bytes(manifest.size_bytes)} read", document, healthy=not problems
    )
    session.out.problems(problems)
    if problems:
        raise typer.Exit(HANDLED)


@command("restore", local=True)
def restore(
    session: Session,
    place: PlaceArgument,
    new_lake: Annotated[str, typer.Argument(metavar="NEW_LAKE", help="A place where nothing is yet.")],
    id: IdOption = None,
    tables: TablesOption = None,
) -> None:
    """Make a new lake of a backup. Nothing that exists is ever written over.

    Examples:
        lithify backup restore /mnt/backups/shop ./restored
        lithify backup restore s3://backups/shop ./restored --id 20261118T120000000Z-0a1b2c --table shop.orders
    """
    from lithify.backup.restore import restore_backup

    with session.out.working("restoring") as report:
        done = restore_backup(place, new_lake, id, tables, progress=report)
    session.out.message(
        f"backup {done.id} is the lake {done.lake}: {plural(done.tables, 'table')}, {human_bytes(done.bytes)}",
        asdict(done),
        f"`lithify tables --lake {done.lake}` lists what came back",
    )


@command("remove", local=True)
def remove(
    session: Session,
    place: PlaceArgument,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Which backups.")] = None,
    keep: Annotated[
        int | None, typer.Option("--keep", metavar="N", min=1, help="All but the N newest, in place of ids.")
    ] = None,
) -> None:
    """Remove backups, and the files that no other backup needs.

    Examples:
        lithify backup remove /mnt/backups/shop --keep 7
        lithify backup remove /mnt/backups/shop 20261118T120000000Z-0a1b2c
    """
    from lithify.backup.restore import remove_backups

    if bool(ids) == (keep is not None):
        raise InvalidRequest("say which backups: their ids, or --keep N")
    with session.out.working("removing"):
        gone, files = remove_backups(place, ids or None, keep)
    session.out.message(
        f"{plural(len(gone), 'backup')} removed, {plural(files, 'file')} deleted", {"removed": gone, "files": files}
    )
