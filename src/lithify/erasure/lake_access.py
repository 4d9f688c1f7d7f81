"""What erasures get from the lake that they run on, and all that they know of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lithify.core.names import TableName
from lithify.tables.runtime import Runtime

if TYPE_CHECKING:
    from lithify.write.access import TableAccess


@dataclass(frozen=True)
class LakeAccess:
    """`table`: the one that has a name now, or NotFound. `let_go`: this process drops what it holds of a table;
    `look`: it looks whether an erasure asks for that."""

    runtime: Runtime
    table: Callable[[str], TableAccess]
    let_go: Callable[[TableName, str], None]
    look: Callable[[], None]
