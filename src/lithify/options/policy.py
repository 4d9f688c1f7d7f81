"""What is wanted of background work on a table: the lake's settings, with what the table's own options say instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from lithify.options.table_options import chosen
from lithify.options.tiers import Tier, declared
from lithify.settings import Settings

BATCH_FILES_MIN, BATCH_FILES_MAX = 2, 500


@dataclass(frozen=True)
class MaintenancePolicy:
    """When a table's changes are folded and its files merged. Every value is a setting and a table option, too."""

    fold_share_max: float = 0.1
    fold_rows_min: int = 10_000
    fold_files_max: int = 100
    fold_age_s_max: int = 3_600
    read_overhead_max: float = 1.5
    write_amplification_max: float = 12
    minor_files_min: int = 20
    minor_bytes_max: int = 32 * 2**20
    minor_rows_max: int = 2_000_000
    pack_target_bytes: int = 512 * 2**20
    pack_files_min: int = 10
    batch_files_max: int = 30
    cluster_target_bytes: int = 128 * 2**20
    tiers: tuple[Tier, ...] = field(default_factory=declared)


def policy_of(settings: Settings, properties: Mapping[str, str] | None = None) -> MaintenancePolicy:
    """The lake's policy, with what the table's own options (its `lithify.*` properties) say instead."""
    own = chosen(properties or {})
    values: dict[str, Any] = {
        field.name: own.get(field.name, getattr(settings, field.name))
        for field in fields(MaintenancePolicy)
        if field.name != "tiers"
    }
    return MaintenancePolicy(**values, tiers=declared(settings.tiers, own.get("tiers", ())))
