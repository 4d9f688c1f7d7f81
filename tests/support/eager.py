"""Settings under which much happens after a few small writes, for lakes that are disturbed on purpose."""

from __future__ import annotations

from typing import Any

from lithify import Settings

_TIERS: Any = tuple({"name": name, "files_min": 2, "age_min_s": 0} for name in ("hourly", "daily"))


def eager(actor: str, **others: Any) -> Settings:
    """Checkpoints every three commits; two small files are enough to be merged, however young."""
    return Settings(actor=actor, **{"checkpoint_every": 3, "pack_files_min": 2, "minor_files_min": 2, **others})


def eager_tiers(actor: str, **others: Any) -> Settings:
    """And compactions by tier."""
    return eager(actor, tiers=_TIERS, **others)
