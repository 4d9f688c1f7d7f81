"""What is wanted of maintenance on a table: the lake's settings, with what the table's own options say instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from lithify.options.table_options import MaintenanceOptions, chosen
from lithify.options.tiers import Tier, declared

BATCH_FILES_MIN, BATCH_FILES_MAX = 2, 500


@dataclass(frozen=True)
class MaintenancePolicy(MaintenanceOptions):
    tiers: tuple[Tier, ...] = field(default_factory=declared)


class LakePolicy(Protocol):
    """Settings of a lake: `tiers`, and an attribute for each of `MaintenanceOptions`."""

    @property
    def tiers(self) -> tuple[dict[str, Any], ...]: ...


def policy_of(settings: LakePolicy, properties: Mapping[str, str] | None = None) -> MaintenancePolicy:
    """The lake's policy, with what the table's own options (its `lithify.*` properties) say instead."""
    own = chosen(properties or {})
    values = {each.name: own.get(each.name, getattr(settings, each.name)) for each in fields(MaintenanceOptions)}
    return MaintenancePolicy(**values, tiers=declared(settings.tiers, own.get("tiers", ())))
