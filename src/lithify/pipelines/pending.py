"""What a step has to do now, told from the logs and the file system alone: no data is read, and Spark is not needed."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from lithify.core.wording import plural
from lithify.errors import InvalidRequest, NotFound
from lithify.files.user_files import find_files, is_file
from lithify.pipelines.checkpoint import FileSeen, Ledger, Ledgers, StepState, files_behind, state_of
from lithify.pipelines.context import Moment, Seen
from lithify.pipelines.declaration import Step

# Beyond this, changed rows are not looked at one by one: the whole source is.
CHANGES_ROWS_MAX = 2_000_000
ASKED, FIRST, DECLARED_FULL = "asked for", "it has not run yet", "declared full"
CHANGED = "its declaration or its source's table is another one now"
ANOTHER = "another step has kept its target since"


@dataclass(frozen=True)
class StepWork:
    """`whole`: the answer is computed from all of the source. `idle`: there is nothing to do, for the reason given."""

    step: Step
    state: StepState
    why: str
    idle: bool = False
    whole: bool = False
    declared: int = 0
    since: int | None = None
    until: int | None = None
    files: tuple[FileSeen, ...] = ()
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def anew(self) -> bool:
        """Whether the step has not run as it is declared now."""
        return self.state.declared != self.declared


def work_of(now: Moment, step: Step, *, full: bool = False) -> StepWork:
    target = now.find(step.target)
    state = state_of(target, step.feed)
    if step.table is None:
        return _of_files(now, step, target, state, full=full)
    source = now.find(step.table)
    if source is None:
        return StepWork(step, state, f"{step.table} is not there yet", idle=True)
    until, declared = source.snapshot.seq, step.fingerprint(source.snapshot.table_id)
    since = state.read

    def whole(why: str) -> StepWork:
        return StepWork(step, state, why, whole=True, declared=declared, until=until)

    if full:
        return whole(ASKED)
    if since is None or state.number is None:
        return whole(FIRST)
    if state.declared != declared:
        return whole(CHANGED)
    if not state.last:
        return whole(ANOTHER)
    if since >= until:
        return StepWork(step, state, "up to date", idle=True, declared=declared, since=since, until=until)
    if step.kind == "full":
        return whole(DECLARED_FULL)
    try:
        if source.feed.more_than(CHANGES_ROWS_MAX, since, until):
            return whole(f"more than {CHANGES_ROWS_MAX:,} rows changed")
        if not source.feed.is_told_of_erased(since, until):
            return whole("rows of its source were erased, and it may have some of them")
    except NotFound:
        return whole(f"changes after seq {since} are no longer all there")
    return StepWork(step, state, "changes", declared=declared, since=since, until=until)


def _of_files(now: Moment, step: Step, target: Seen | None, state: StepState, *, full: bool) -> StepWork:
    ledgers, declared = Ledgers(now.context.runtime, step), step.fingerprint()
    if state.number is None and not may_begin(target, ledgers):
        raise InvalidRequest(
            f"{step.label} has read files before, but {step.target} no longer remembers which (30 days have passed, or "
            "another table was put in its place), and rows that are appended twice are there twice: drop the table and "
            "begin again, or give the step another name if its files are new"
        )
    ledger = Ledger() if full else ledgers.read(state.ledger)
    found = listed(step)
    news = tuple(ledger.news(found))
    if not news:
        why = f"no new files among {plural(len(found), 'file')}" if found else "no files yet"
        if state.declared not in (None, declared):
            why += "; its query was changed, which --full applies to files that were read before"
        return StepWork(step, state, why, idle=True, declared=declared, ledger=ledger)
    return StepWork(
        step, state, ASKED if full else "new files", declared=declared, files=news, ledger=ledger, whole=full
    )


def may_begin(target: Seen | None, ledgers: Ledgers) -> bool:
    """A ledger without progress is what a first run leaves that died before its commit, or what is left of forgotten
    ones: then the target has rows.
    """
    if target is None or not ledgers.names():
        return True
    return target.schema.keyed or target.snapshot.seq <= target.handles.changes.created_at_seq


def listed(step: Step) -> list[FileSeen]:
    """The files behind the step's patterns, as they are now. Patterns are relative to the current folder."""
    found: list[str] = []
    for pattern in step.files:
        with contextlib.suppress(NotFound):
            found += find_files(pattern)
    return files_behind(path for path in dict.fromkeys(found) if is_file(path))
