"""Documents about what happened a moment ago, about jobs that are ended, and about the health of the whole."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from lithify.core.fields import Seconds
from lithify.http.documents.tables import Document


class EventDocument(Document):
    """Something that happened."""

    id: str = Field(description="To go on from: `after`.", examples=["3f0c9a4e5b7d4c1e8a2b6d9f0e1c2b3a"])
    time_ms: int = Field(description="When, in milliseconds since 1970.")
    event: str = Field(
        description="written, folded or changed (a table), job started, job ended, cycle started, cycle done.",
        examples=["written"],
    )
    table: str | None = Field(description="The table that it is about; null: the lake as a whole.")
    facts: dict[str, Any] = Field(description="What else there is to say.", examples=[{"seq": 42}])


class EventsDocument(Document):
    """What happened, oldest first."""

    events: list[EventDocument] = Field(description="At most `limit` of them.")
    last: str | None = Field(description="The id to ask `after` next.")
    gap: bool = Field(description="Whether more has happened than is kept: look at the state itself.")
    more: bool = Field(description="Whether there are more: ask `after` the last one at once.")


class CancelledJobDocument(Document):
    """A job, or a cycle, that was told to end."""

    id: str = Field(description="Its id.")
    cancelled: bool = Field(description="True. It ends at its next step, in another process within seconds.")


class CheckDocument(Document):
    """One thing that was looked at."""

    name: str = Field(description="What.", examples=["fsync"])
    status: Literal["ok", "warn", "fail"] = Field(
        description="fail: something will not work. warn: it works, but slowly, or not for long."
    )
    found: str = Field(description="How it is.")
    advice: str = Field(description="What to do about it, if it is not ok.")


class DoctorDocument(Document):
    """How this machine, its libraries and the lake are."""

    checks: list[CheckDocument] = Field(description="In the order they were made.")
    failed: int = Field(description="How many of them fail.")
    warned: int = Field(description="How many of them warn.")
    seconds: Seconds = Field(description="How long it took.")
    time_ms: int = Field(description="When it was made, in milliseconds since 1970.")
