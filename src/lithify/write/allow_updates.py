"""The first partial update of a table, and the first delete with an order value, say so in its log (`lithify.format`):
a program that does not know lines of this kind must not read past them.
"""

from __future__ import annotations

from collections.abc import Iterable

from lithify.core.ops import ORDERED_DELETES, Op
from lithify.core.schema import FORMAT_PROPERTY, ORDERED_DELETES_FORMAT, PARTIAL_FORMAT
from lithify.delta.actions import LogChange
from lithify.tables.handles import Handles


def allow_updates(handles: Handles) -> None:
    """Say in the log that the table may hold lines that give some columns alone, if it does not say so yet."""
    _allow(handles, PARTIAL_FORMAT, "updates")


def allow_ordered_deletes(handles: Handles, ops: Iterable[Op]) -> None:
    """Say in the log that the table may hold deletes with an order value, if there is one among these."""
    if not ORDERED_DELETES.isdisjoint(ops):
        _allow(handles, ORDERED_DELETES_FORMAT, "ordered deletes")


def _allow(handles: Handles, table_format: int, what: str) -> None:
    changes = handles.changes

    def allowed() -> bool:
        return int(changes.log.properties.get(FORMAT_PROPERTY, "0")) >= table_format

    def build() -> LogChange | None:
        if allowed():
            return None
        info = {"operation": f"allow {what}", "actor": handles.runtime.settings.actor, "seq": changes.seq}
        return LogChange(info, properties={FORMAT_PROPERTY: str(table_format)})

    if not allowed():
        handles.commit(changes.log, f"allowing {what} of", build, point="allow_updates")
