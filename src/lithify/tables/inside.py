"""What users hold, from within.

`Lake` and `Table` show what is meant for users and nothing else. A room that works on their logs, or runs them, asks
here for what they are made of; no other module reaches into a private member of another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from lithify.lake.lake import Lake, LakeInside
    from lithify.lake.open_tables import TableInside
    from lithify.lake.table import Table


@overload
def inside(held: Table) -> TableInside: ...
@overload
def inside(held: Lake) -> LakeInside: ...
def inside(held: Any) -> Any:
    return held._inside
