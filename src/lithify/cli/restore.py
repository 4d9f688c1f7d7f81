"""`lithify restore`: the rows of an earlier version again."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from lithify.cli.command import ActorOption, BatchIdOption, Commands, ReasonOption, Session, TableArgument
from lithify.core.wording import plural

command = Commands("Rows")


@command("restore")
def restore(
    session: Session,
    name: TableArgument,
    to: Annotated[str, typer.Argument(metavar="VERSION", help="A seq, a time (ISO, UTC by default), or a tag.")],
    actor: ActorOption = None,
    reason: ReasonOption = None,
    batch_id: BatchIdOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be written and deleted.")] = False,
) -> None:
    """Make the rows of an earlier version the newest ones, in one commit that undoes what changed since.

    Nothing is lost: the versions in between can be read, and restored, too. Columns stay as they are now.

    Examples:
        lithify restore shop.orders 41 --dry-run
        lithify restore shop.orders before-import --reason "a bad import"
    """
    with session.lake() as lake:
        table = lake.table(name)
        if dry_run:
            plan = table.restore(to, dry_run=True)
            would = f"{plural(plan.upserted, 'row')} would be written and {plan.deleted:,} deleted"
            session.out.message(f"{would}: {name} as of seq {plan.to}, now {plan.seq}", asdict(plan))
            return
        commit = table.restore(to, batch_id, actor=actor, reason=reason)
        text = f"{plural(commit.upserted, 'row')} written and {commit.deleted:,} deleted: seq {commit.seq} of {name}"
        if commit.replayed:
            text = f"batch {batch_id} was restored on {name} before, as seq {commit.seq}: nothing was changed"
        elif not commit.rows:
            text = f"{name} has these rows already: nothing was changed"
        session.out.message(f"{text}", asdict(commit))
