"""What stands in an erasure's way: versions that somebody asked to keep."""

from __future__ import annotations

from lithify.errors import NotFound
from lithify.tables.handles import Handles
from lithify.tables.pins import pins_of, remove_pin
from lithify.tables.tags import stored_tags, untag


def blockers(handles: Handles) -> tuple[str, ...]:
    """Pins of processes that may be alive, and tags, in words."""
    pins = [pin for pin in pins_of(handles.runtime, handles.name) if pin.table_id == handles.incarnation]
    held = [
        f"a pin of seq {pin.seq} by process {pin.owner.pid} on {pin.owner.host}"
        for pin in pins
        if pin.holds(handles.runtime)
    ]
    return (*held, *(f"the tag {tag.name} of seq {tag.seq}" for tag in stored_tags(handles)))


def break_pins(handles: Handles) -> None:
    """Whoever holds one is told that files are missing, when it next reads them."""
    for pin in pins_of(handles.runtime, handles.name):
        if pin.table_id == handles.incarnation:
            remove_pin(handles.runtime, pin)
    for tag in stored_tags(handles):
        try:
            untag(handles, tag.name)
        except NotFound:
            continue
