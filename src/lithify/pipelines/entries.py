"""What is declared in a lake's settings to run by itself or on request: pipelines and streams, under one set of names.

Everything that can be told without looking at a table is checked here, before anything runs; an error names the entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lithify.errors import InvalidRequest
from lithify.files.addresses import address_of
from lithify.maintenance.scheduler import cron_trigger
from lithify.pipelines.declaration import Declaration, parse_pipelines
from lithify.pipelines.schedule import Schedule
from lithify.pipelines.stream_declaration import StreamDeclaration, parse_streams
from lithify.settings import Settings

Kind = Literal["pipeline", "stream"]


@dataclass(frozen=True)
class Entry:
    kind: Kind
    declared: Declaration | StreamDeclaration

    @property
    def name(self) -> str:
        return self.declared.name

    @property
    def schedule(self) -> Schedule | None:
        """None: it runs when somebody asks."""
        return self.declared.schedule

    @property
    def targets(self) -> tuple[str, ...]:
        return self.declared.targets

    @property
    def sources(self) -> tuple[str, ...]:
        """Tables of the lake that it reads row by row."""
        if isinstance(self.declared, StreamDeclaration):
            return ()
        return tuple(dict.fromkeys(step.table for step in self.declared.steps if step.table is not None))

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def declared_entries(settings: Settings, *, remote: bool = False) -> dict[str, Entry]:
    """By name, pipelines first, each as it stands in the settings. `remote`: they are those of a lake in a bucket."""
    entries = {name: Entry("pipeline", found) for name, found in parse_pipelines(settings.pipelines).items()}
    for name, stream in parse_streams(settings.streams).items():
        if name in entries:
            raise InvalidRequest(f"there is a pipeline and a stream called {name!r}: give one of them another name")
        _check_checkpoint(stream, remote)
        entries[name] = Entry("stream", stream)
    for entry in entries.values():
        _check_schedule(entry)
    return entries


def _check_checkpoint(stream: StreamDeclaration, remote: bool) -> None:
    given = stream.checkpoint
    if (given is None and remote) or (given is not None and address_of(given) is not None):
        raise InvalidRequest(
            f"stream {stream.name} keeps what it has taken in a folder, not in a bucket: name one with "
            'checkpoint = "DIR"; where several machines run what is declared, one that all of them see'
        )


def _check_schedule(entry: Entry) -> None:
    schedule = entry.schedule
    if schedule is None:
        return
    if schedule.cron is not None:
        cron_trigger(schedule.cron, str(entry))
    if schedule.on is not None and schedule.on in entry.targets:
        raise InvalidRequest(
            f"{entry}: it would run on its own changes: on = {schedule.on!r} is what it writes; name a table that it "
            "reads"
        )
