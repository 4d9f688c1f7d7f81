"""What stands in an erasure's way: versions that somebody asked to keep."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from lithify.errors import NotFound
from lithify.tables.handles import Handles
from lithify.tables.pins import Pin, pins_of, remove_pin
from lithify.tables.tags import stored_tags, untag


def blockers(handles: Handles) -> tuple[str, ...]:
    """Pins of processes that may be alive, and tags, in words."""
    pins = [pin for pin in pins_of(handles.runtime, handles.name) if pin.table_id == handles.incarnation]
    held = [_told(pin) for pin in pins if pin.holds(handles.runtime)]
    return (*held, *(f"the tag {tag.name} of seq {tag.seq}" for tag in stored_tags(handles)))


def pins_on(handles: Handles, files: AbstractSet[str]) -> tuple[str, ...]:
    """Pins of processes that may be alive, and may read one of these files: each by its path below its log's name."""
    pins = [pin for pin in pins_of(handles.runtime, handles.name) if pin.table_id == handles.incarnation]
    return tuple(_told(pin) for pin in pins if pin.files & files and pin.holds(handles.runtime))


def break_pins(handles: Handles, *, tags_too: bool) -> None:
    """Whoever holds one is told that files are missing, when it next reads them."""
    for pin in pins_of(handles.runtime, handles.name):
        if pin.table_id == handles.incarnation:
            remove_pin(handles.runtime, pin)
    for tag in stored_tags(handles) if tags_too else ():
        try:
            untag(handles, tag.name)
        except NotFound:
            continue


def _told(pin: Pin) -> str:
    return f"a pin of seq {pin.seq} by process {pin.owner.pid} on {pin.owner.host}"
