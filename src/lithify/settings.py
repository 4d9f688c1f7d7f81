"""All settings, each one row: name, default, help. Read once, then passed as values.

They come from `lithify.toml` in the current folder and from `LITHIFY_*` variables; the environment wins.
"""

from __future__ import annotations

import getpass
from pathlib import Path

from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from lithify.errors import InvalidRequest


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="LITHIFY_", toml_file="lithify.toml", extra="ignore", frozen=True)

    lake: Path | None = Field(None, description="The lake's folder, for commands that are not given --lake.")
    actor: str = Field(default_factory=_user, description="Who is recorded in the history for writes and deletes.")
    spark_master: str = Field("local[*]", description="Spark master for bulk work.")
    spark_remote: str | None = Field(
        None, description="Spark Connect address (sc://host:15002); wins over spark_master."
    )
    spark_driver_memory: str | None = Field(
        None, description="Heap of the local JVM; default a third of the machine, 1g to 8g."
    )
    spark_shuffle_partitions: int | None = Field(
        None, ge=1, description="Shuffle partitions; default twice the cores in local mode."
    )
    spark_conf: dict[str, str] = Field(
        default_factory=dict, description="Further Spark settings, passed on as they are."
    )
    commit_attempts_max: int = Field(200, ge=1, description="How often a commit that lost a race is tried again.")
    commit_wait_s_max: float = Field(60, gt=0, description="How long all those attempts may take together, in seconds.")
    checkpoint_every: int = Field(20, ge=2, description="Commits between two checkpoints of a log.")
    local_job_bytes_max: int = Field(
        64 * 2**20,
        ge=0,
        description="A fold that reads less than this runs in this process; a larger one on Spark. 0: always Spark.",
    )
    resolve_rows_max: int = Field(
        20_000_000,
        ge=1,
        description="Pending change rows that are merged in this process's memory; beyond that Spark or SQL "
        "merges them.",
    )
    query_memory_bytes_max: int = Field(
        4 * 2**30, ge=2**26, description="Memory of one serving engine; beyond it, queries spill to disk."
    )
    lock_wait_s_max: float = Field(
        30, gt=0, description="How long create, drop and adopt wait for each other, in seconds."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load_settings(**overrides: object) -> Settings:
    try:
        return Settings(**overrides)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise InvalidRequest(
            f"setting {name!r}: {first['msg']} (from lithify.toml or LITHIFY_{name.upper()})"
        ) from error
