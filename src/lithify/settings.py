"""All settings, each one row: name, default, help. Read once, then passed as values.

They come from `LITHIFY_*` variables and from files (`settings_files`); the environment wins.
"""

from __future__ import annotations

import getpass
import logging
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from lithify.errors import InvalidRequest, did_you_mean
from lithify.options.table_options import TableOptions
from lithify.settings_files import ENV_PREFIX, NAME, VARIABLES, SettingsFiles, say_once

logger = logging.getLogger(__name__)


_NEEDED = re.compile(r"PATH|HOME|TMPDIR|TZ|LANG|LC_\w+|LD_\w+|PYTHON\w+|VIRTUAL_ENV|\w+_NUM_THREADS|MALLOC_\w+")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


def user_cache_folder() -> Path:
    """Where this user's programs keep what they can do without."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "lithify"


Role = Literal["read", "write", "compact"]
S3aChoice = Literal["auto", "packages", "off"]


def bare_environment() -> dict[str, str]:
    """What the interpreter and its libraries need of the environment, for processes that must hold no secrets."""
    return {name: value for name, value in os.environ.items() if _NEEDED.fullmatch(name)}


def memory_bytes(text: str) -> int:
    """Bytes of "512m" or "4g"; a bare number is so many MiB, as in Spark's memory settings."""
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not an amount of memory like 512m or 4g")
    return int(match[1]) << {"k": 10, "": 20, "m": 20, "g": 30, "t": 40}[match[2]]


def _memory(text: str) -> str:
    memory_bytes(text)
    return text


def _at_least_1g(text: str) -> str:
    if memory_bytes(text) < 2**30:
        raise ValueError(f"{text!r} is less than 1g")
    return text


def _listed(value: Any) -> Any:
    """A list in the environment is words with commas between them."""
    return [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value


def _text(value: Any) -> Any:
    """A place is kept as it was written: a path would swallow a slash of s3://."""
    return str(value) if isinstance(value, PurePath) else value


def _octal(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"(0o)?[0-7]{3,4}", value):
        return int(value.removeprefix("0o"), 8)
    if isinstance(value, int) and not isinstance(value, bool):
        return value  # of TOML, where 0o640 is a number
    raise ValueError('it is a text of octal digits, like "640"')


def _owners_too(mode: int) -> int:
    if mode & 0o600 != 0o600 or mode & ~0o666:
        raise ValueError(f"{mode:o} does not let the owner read and write, or has more than r and w: 600 to 666")
    return mode


class Settings(BaseSettings, TableOptions):  # type: ignore[misc]  # frozen too, as its configuration says
    """Those of `TableOptions`, which a table may set otherwise, and the ones of a lake or a process."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True)
    _files: SettingsFiles = PrivateAttr()
    _roles_read: tuple[str, ...] = PrivateAttr(())

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InvalidRequest(_refusal(error, values)) from error
        except SettingsError as error:
            raise InvalidRequest(f"{error}: it is no JSON (from LITHIFY_* variables)") from error

    lake: Annotated[str, BeforeValidator(_text)] | None = Field(
        None, description="The lake's folder or s3://bucket/prefix, for commands that are not given --lake."
    )
    allowed_paths: Annotated[tuple[Annotated[str, BeforeValidator(_text)], ...], NoDecode, BeforeValidator(_listed)] = (
        Field(
            (),
            description="Folders or s3:// addresses outside of a lake that it may refer to: bases of adopted tables, "
            "and targets of links.",
        )
    )
    actor: str = Field(default_factory=_user, description="Who is recorded in the history for writes and deletes.")
    spark_master: str = Field("local[*]", description="Spark master for bulk work.")
    spark_remote: str | None = Field(
        None, description="Spark Connect address (sc://host:15002); wins over spark_master."
    )
    spark_driver_memory: Annotated[str, AfterValidator(_memory)] | None = Field(
        None, description="Heap of the local JVM; default a third of the machine, 1g to 8g."
    )
    spark_executor_memory: Annotated[str, AfterValidator(_memory)] | None = Field(
        None, description="Heap of each executor on a cluster (4g); default what Spark takes, 1g."
    )
    spark_executor_cores: int | None = Field(
        None, ge=1, description="Cores of each executor on a cluster; default what Spark takes."
    )
    spark_shuffle_partitions: int | None = Field(
        None, ge=1, description="Shuffle partitions; default twice the cores, on a cluster at least 200."
    )
    spark_conf: dict[str, str] = Field(
        default_factory=dict, description="Further Spark settings, passed on as they are."
    )
    s3a: S3aChoice = Field(
        "auto",
        description="Whether Spark reads a lake in a bucket by itself: auto, where it has Hadoop's connector (s3a); "
        "packages: a Spark that is started here fetches it (13 MB); off: never.",
    )
    spark_wait_s_max: float = Field(
        120, gt=0, le=86_400, description="How long executors of a cluster may take to come to work, in seconds."
    )
    worker_memory: Annotated[str, AfterValidator(_at_least_1g)] | None = Field(
        None, description="Memory of the Spark worker and its tasks (4g); default half of the machine, 1g to 16g."
    )
    worker_idle_s: float = Field(
        300, gt=0, description="Seconds without work after which the Spark worker is given back."
    )
    worker_silence_s_max: float = Field(
        60, ge=5, description="Seconds without a sign of life after which the Spark worker is killed."
    )
    commit_attempts_max: int = Field(200, ge=1, description="How often a commit that lost a race is tried again.")
    commit_wait_s_max: float = Field(60, gt=0, description="How long all those attempts may take together, in seconds.")
    queue_commands_max: int = Field(50, ge=1, le=10_000, description="Writes that may wait for one table's writer.")
    queue_wait_s_max: float = Field(
        30, gt=0, description="How long a write waits for room in a full queue, in seconds, before it is refused."
    )
    loaded_tables_max: int = Field(50, ge=1, description="Tables that are open at once; the least recently used goes.")
    idle_unload_s: float = Field(1800, gt=0, description="Seconds without use after which a table is unloaded.")
    refresh_s: float = Field(
        30, ge=1, description="Seconds between two looks for other processes' commits to open tables."
    )
    local_job_bytes_max: int = Field(
        64 * 2**20,
        ge=0,
        description="A fold that reads less than this, and a compaction that reads less than a quarter of it, runs in "
        "this process; a larger one on Spark, where that is installed. 0: always Spark.",
    )
    local_ingest_bytes_max: int = Field(
        4 * 2**30,
        ge=0,
        description="Files up to this size in all are loaded by this process; larger ones by Spark, where that is "
        "installed. 0: always Spark. An estimate, not measured: lower it where Spark has many cores.",
    )
    local_frame_bytes_max: int = Field(
        8 * 2**20,
        ge=0,
        description="A Spark DataFrame that is expected to hold no more than this is fetched and written by this "
        "process, without the jobs of a write by Spark. 0: always Spark.",
    )
    resolve_rows_max: int = Field(
        20_000_000,
        ge=1,
        description="Pending change rows that are merged in this process's memory; beyond that Spark or SQL "
        "merges them.",
    )
    stream_rows_max: int = Field(
        100_000,
        ge=0,
        le=10_000_000,
        description="Rows of a micro-batch that are written by this process; larger ones are written by Spark.",
    )
    feed_rows_max: int = Field(
        200_000,
        ge=0,
        le=10_000_000,
        description="Changed rows of which `feed_to_spark` works out here what became of them; more are left to Spark.",
    )
    query_timeout_s: float = Field(
        30, gt=0, le=86_400, description="Seconds that a query of the service may run before it is stopped."
    )
    query_memory_bytes_max: int = Field(
        2**30, ge=2**24, description="Memory of one SQL query; beyond it, the query spills to disk or is stopped."
    )
    query_spill_bytes_max: int = Field(
        8 * 2**30, ge=2**20, description="Temporary disk of one SQL query; beyond it, the query is stopped."
    )
    query_rows_max: int = Field(
        10_000, ge=1, description="Rows in an answer of the service, unless the query asks for fewer; the rest is cut."
    )
    flight_rows_max: int = Field(
        1_000_000, ge=1, description="Rows in an answer over Flight SQL; a query with more is refused, never cut."
    )
    statement_rows_max: int = Field(
        1_000_000, ge=1, description="Rows that one SQL statement may write, or match in the table that it writes to."
    )
    queries_max: int = Field(4, ge=1, le=1_000, description="Queries of the service that run at the same time.")
    query_wait_s_max: float = Field(
        10, ge=0, description="How long a query waits for one of those slots, in seconds, before it is refused."
    )
    token_queries_max: int | None = Field(
        None,
        ge=1,
        le=1_000,
        description="Of those slots, how many one token can have; default three quarters of them.",
    )
    token_waiting_max: int = Field(
        20, ge=0, le=1_000, description="Queries of one token that may wait for a slot; more are refused at once."
    )
    token_memory_bytes_max: int | None = Field(
        None,
        ge=2**24,
        description="Memory of all queries of one token together; default twice query_memory_bytes_max.",
    )
    token_spill_bytes_max: int | None = Field(
        None,
        ge=2**20,
        description="Temporary disk of all queries of one token together; default twice query_spill_bytes_max.",
    )
    cache_bytes_max: int | None = Field(
        None,
        ge=0,
        description="Memory for hot tables and kept answers; default the smaller of 16 GiB and half of the machine's "
        "memory. 0: no cache.",
    )
    host: str = Field("127.0.0.1", description="Address that `lithify serve` listens on.")
    port: int = Field(8080, ge=0, le=65_535, description="Port that `lithify serve` listens on; 0: any free one.")
    flight_port: int | None = Field(
        None,
        ge=0,
        le=65_535,
        description="Port on which `lithify serve` speaks Arrow Flight SQL, for BI tools and ADBC; 0: any free one.",
    )
    tls_cert: Path | None = Field(None, description="Certificate chain (PEM) for `lithify serve`.")
    tls_key: Path | None = Field(None, description="Private key (PEM) of that certificate.")
    allowed_hosts: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)] = Field(
        (), description="Further names that clients may call the service by (the Host header)."
    )
    body_bytes_max: int = Field(
        64 * 2**20, ge=2**10, le=2**31, description="Size of a request's body, as sent and when it is unpacked."
    )
    shutdown_s: float = Field(
        30, ge=0, description="How long `lithify serve` waits for requests under way when it is told to stop."
    )
    file_mode: Annotated[int, BeforeValidator(_octal), AfterValidator(_owners_too)] | None = Field(
        None,
        description="Who may read and write the files of a lake, as octal digits (640), and its folders, which can be "
        "entered by who may read (750); default by the umask of each process.",
    )
    server: str | None = Field(
        None, description="Address of a service (http://host:port) for commands that are not given --server."
    )
    token: SecretStr | None = Field(None, description="Token for that service; better in LITHIFY_TOKEN than in a file.")
    lock_wait_s_max: float = Field(
        30, gt=0, description="How long create, drop and adopt wait for each other, in seconds."
    )
    pin_hours_max: float = Field(
        24,
        ge=1,
        le=8_760,
        description="How long vacuum respects the pin of a process on another host that no longer renews it, in hours.",
    )
    roles: Annotated[tuple[Role, ...], NoDecode, BeforeValidator(_listed)] = Field(
        ("read", "write", "compact"),
        description="What this node is for: read, write, compact. Cycles of maintenance run only where compact is "
        "listed; the others are not checked.",
    )
    jobs_max: int = Field(2, ge=1, le=64, description="Jobs of a cycle that run at the same time.")
    cycle_timeout_s: float = Field(
        1800, gt=0, description="After this many seconds a cycle starts no further job and cancels what it can."
    )
    lease_s: float = Field(
        60,
        ge=1,
        le=3600,
        description="How long a process that went silent keeps others from running a cycle, in seconds. In a bucket, "
        "its jobs are taken over after five times as long.",
    )
    policy_interval_s: float = Field(
        60, gt=0, description="Seconds between two looks of `lithify run` at what should be folded, merged and packed."
    )
    vacuum_interval_s: float = Field(
        3_600, ge=0, description="Seconds between two vacuums of a table that maintenance does by itself; 0: never."
    )
    vacuum_cron: str | None = Field(
        None, description="When `lithify run` vacuums every table besides, as a cron expression in UTC."
    )
    index_folder: Path | None = Field(
        None, description="A local folder for the tables' indexes, for a lake on a slow or remote mount."
    )
    cache_folder: Path | None = Field(
        None,
        description="A local folder for copies of the files of lakes in buckets, and for their indexes; default a "
        "folder of this user (~/.cache/lithify). Nothing there is needed: it can be removed at any time.",
    )
    cache_gb_max: float | None = Field(
        None,
        gt=0,
        description="Disk for those copies, in GB; default 10, and at most a fifth of what is free. Queries may need "
        "more for as long as they run.",
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="How `lithify run` and `lithify serve` write their log lines: text (key=value) or json."
    )
    tiers: tuple[dict[str, Any], ...] = Field(
        (), description="Changes to the tiers of tables with a time column, by name, and further tiers."
    )
    pipelines: dict[str, Any] = Field(
        default_factory=dict,
        description="Declared pipelines by name, each with its steps, and when it runs: docs/spark.md tells how.",
    )
    streams: dict[str, Any] = Field(
        default_factory=dict,
        description="Declared streams by name: folders whose files `lithify serve` and `lithify run` take into tables.",
    )

    all_frames: bool = Field(
        False, description="Errors in notebooks and in Spark show the frames of Lithify too, in the whole process."
    )

    def model_post_init(self, context: Any, /) -> None:
        self._files = SettingsFiles.current()
        _tell_misspelt()
        default = type(self).model_fields["roles"].default
        self._roles_read = tuple(_listed(os.environ.get(f"{ENV_PREFIX}ROLES", self._files.said.get("roles", default))))

    def roles_now(self) -> tuple[Role, ...]:
        """What this node is for may change while it runs: read again, unless a program has said it."""
        if self.roles != self._roles_read:
            return self.roles
        try:
            with self._files.anew().in_use():
                return Settings.model_validate({}).roles
        except (InvalidRequest, ValidationError, SettingsError) as error:
            logger.warning("roles stay %s, the settings cannot be read now: %s", ",".join(self.roles), error)
            return self.roles

    def source_of(self, name: str) -> str | None:
        """The variable or the file that a setting comes from; None: it is the default, or a program says it."""
        return self._files.source_of(name)

    @staticmethod
    def check_said(text: str) -> None:
        """Raises if a file of settings with this text could not be used. Nothing else is looked at."""
        said = tomllib.loads(text)
        with SettingsFiles.nothing().in_use():
            Settings(**said)

    def only_named_here(self, name: str) -> bool:
        """Whether nothing but a file in the current folder sets it, which anybody may have put there."""
        return name in self._files.found_here and f"{ENV_PREFIX}{name.upper()}" not in os.environ

    @property
    def token_sent(self) -> SecretStr | None:
        """The token for `server`: that of the environment is not for a server that the current folder names."""
        mine = not self.only_named_here("server") or self.only_named_here("token")
        return self.token if mine else None

    @property
    def copies_folder(self) -> Path:
        return (self.cache_folder or user_cache_folder()).absolute()

    @property
    def copies_bytes_max(self) -> int | None:
        return None if self.cache_gb_max is None else int(self.cache_gb_max * 10**9)

    @property
    def cache_bytes(self) -> int:
        if self.cache_bytes_max is not None:
            return self.cache_bytes_max
        return min(16 * 2**30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)

    @property
    def token_queries(self) -> int:
        return self.token_queries_max if self.token_queries_max is not None else max(self.queries_max * 3 // 4, 1)

    @property
    def token_memory_bytes(self) -> int:
        return self.token_memory_bytes_max or 2 * self.query_memory_bytes_max

    @property
    def token_spill_bytes(self) -> int:
        return self.token_spill_bytes_max or 2 * self.query_spill_bytes_max

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, SettingsFiles.current().source(settings_cls)


def load_settings(*, config: Path | None = None, of_lake: PurePath | None = None, **overrides: object) -> Settings:
    """`config`: a file to read in place of the current folder's; `of_lake`: whose own file is read too."""
    with SettingsFiles(config, of_lake).in_use():
        return Settings(**overrides)


def _tell_misspelt() -> None:
    """A variable that is no setting changes nothing, which its owner would not notice."""
    for variable in os.environ:
        name = variable.removeprefix(ENV_PREFIX)
        if name == variable or variable in VARIABLES or name.lower() in Settings.model_fields:
            continue
        if meant := did_you_mean(name, map(str.upper, Settings.model_fields), ENV_PREFIX):
            say_once("%s in the environment is no setting: %s", variable, meant)


def _refusal(error: ValidationError, given: Mapping[str, Any]) -> str:
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        hint = did_you_mean(name, Settings.model_fields) or "docs/settings.md lists what there is"
        return f"there is no setting {name!r}{'' if name in given else f' (from {NAME})'}: {hint}"
    if name == "tiers" and first["type"] == "tuple_type":
        return "setting 'tiers' is a list: write [[tiers]] before each tier in lithify.toml"
    field = f" ({'.'.join(str(part) for part in first['loc'][1:])})" if len(first["loc"]) > 1 else ""
    source = "" if name in given else f" (from {NAME} or {ENV_PREFIX}{name.upper()})"
    return f"setting {name!r}{field}: {first['msg']}{source}"
