"""The files that settings are read from, and what each of them may say.

- a file that somebody named, with --config or LITHIFY_CONFIG: everything;
- else `lithify.toml` in the current folder, which may have come with a download or an archive: what cannot run a
  program, reach another machine or lead to another place (`TOLD_ONLY`). What it may not say is left out, and said;
- `_lithify/lithify.toml` in the lake (`lithify set` writes it), then `lithify.toml` beside that folder, for settings
  that go with the lake, if the file belongs to this user and nobody else can write to it: no more than in the current
  folder, because whoever unpacks an archive owns what was in it, and nothing that is the opener's own to say
  (`OPENERS_ONLY`). Where `lithify set` of this user wrote the file, as it is now, it may say the others too: a
  hash of it stands in the user's own folder for settings.

The first wins, and the environment wins over files. Whether a setting may stand in the current folder is told by its
kind: numbers, switches and choices do no harm, and every other one is named in one of the lists below.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from lithify.errors import InvalidRequest

logger = logging.getLogger(__name__)

NAME = "lithify.toml"
IN_LAKE = (f"_lithify/{NAME}", NAME)
ENV_PREFIX = "LITHIFY_"
CONFIG_VARIABLE = f"{ENV_PREFIX}CONFIG"

# Not from the current folder or a lake: why.
TOLD_ONLY: Mapping[str, str] = {
    "allowed_paths": "it names folders that a lake may lead to",
    "spark_master": "another machine would run the work",
    "spark_remote": "another machine would run the work",
    "spark_conf": "it can run programs",
    "s3a": "it can fetch programs",
    "host": "it opens the service to others",
    "allowed_hosts": "it opens the service to others",
    "tls_cert": "it decides who can listen in",
    "tls_key": "it decides who can listen in",
    "index_folder": "files are written there",
    "cache_folder": "files are written there",
    "file_mode": "it opens files to others",
    "streams": "they run by themselves",
}
# Texts, paths and tables that may: none of them is more than a name, an amount or a rule of Lithify's own. A pipeline
# runs when somebody asks for it by its name (when it runs by itself is left out, `RUNS_BY_ITSELF`); a server is sent no
# token but one of the same file.
HARMLESS = frozenset(
    {
        "lake",
        "actor",
        "spark_driver_memory",
        "spark_executor_memory",
        "worker_memory",
        "server",
        "token",
        "roles",
        "vacuum_cron",
        "log_format",
        "tiers",
        "pipelines",
    }
)
# Of a pipeline: what makes it run without being asked for.
RUNS_BY_ITSELF = ("every", "cron", "on")
# Variables that are no settings.
VARIABLES = frozenset({CONFIG_VARIABLE, f"{ENV_PREFIX}TRACEBACK"})
# Not from the lake: it is data, and these are about what surrounds it.
OPENERS_ONLY = frozenset({"lake", "allowed_paths", "server", "token"})

_said: set[tuple[str, ...]] = set()


class SettingsFiles:
    """The files of one reading of the settings. Nothing is read before it is asked for."""

    def __init__(self, config: Path | None = None, lake: PurePath | None = None) -> None:
        given = os.environ.get(CONFIG_VARIABLE)
        self._config = config or (Path(given).expanduser() if given else None)
        self._lake = None if lake is None else Path(lake)

    @classmethod
    def nothing(cls) -> SettingsFiles:
        """No file at all."""
        files = cls()
        files.__dict__["said"] = files.__dict__["_here"] = {}
        return files

    @classmethod
    def current(cls) -> SettingsFiles:
        return _in_use.get() or cls()

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        before = _in_use.set(self)
        try:
            yield
        finally:
            _in_use.reset(before)

    def anew(self) -> SettingsFiles:
        """The same files, to be read once more."""
        return SettingsFiles(self._config, self._lake)

    def source(self, settings: type[BaseSettings]) -> PydanticBaseSettingsSource:
        return _Source(settings, self.said)

    @cached_property
    def said(self) -> dict[str, Any]:
        """What the files say together, as far as they may."""
        return {name: value for of_file in reversed(self._by_file) for name, value in of_file[1].items()}

    @property
    def _by_file(self) -> list[tuple[str, dict[str, Any]]]:
        """What each file says, as far as it may; the first wins."""
        told = [(str(self._config), self._told), (str(Path(NAME).absolute()), self._here)]
        return [*told, *((str(path), found) for path, found in self._of_lake.items())]

    def source_of(self, name: str) -> str | None:
        """The variable or the file that a setting comes from; None: nothing sets it."""
        variable = f"{ENV_PREFIX}{name.upper()}"
        if variable in os.environ:
            return variable
        return next((path for path, found in self._by_file if name in found), None)

    @property
    def found_here(self) -> frozenset[str]:
        """What the file of the current folder says, as far as it may."""
        return frozenset(self._here)

    @cached_property
    def _told(self) -> dict[str, Any]:
        if self._config is None:
            return {}
        try:
            return _parsed(self._config, self._config.read_bytes())
        except OSError as error:
            raise InvalidRequest(
                f"{self._config} cannot be read ({error.strerror}): --config and {CONFIG_VARIABLE} name a file of "
                "settings"
            ) from error

    @cached_property
    def _here(self) -> dict[str, Any]:
        path = Path(NAME)
        if self._config is not None or not path.is_file() or self._is_the_lakes(path):
            return {}
        try:
            found = _parsed(path, path.read_bytes())
        except OSError as error:
            raise InvalidRequest(f"{path.absolute()} cannot be read ({error.strerror}): check its mode") from error
        found, reasons = harmless(found)
        if reasons:
            say_once(
                "%s in the current folder: left out %s. If it is yours, pass --config %s, or set %s",
                str(path.absolute()),
                "; ".join(reasons.values()),
                NAME,
                CONFIG_VARIABLE,
            )
        return found

    @cached_property
    def _of_lake(self) -> dict[Path, dict[str, Any]]:
        """By file; the first wins."""
        return {} if self._lake is None else {path: _of_lake(path) for path in map(self._lake.joinpath, IN_LAKE)}

    def _is_the_lakes(self, path: Path) -> bool:
        return self._lake is not None and any(_are_one(path, self._lake / name) for name in IN_LAKE)


def _of_lake(path: Path) -> dict[str, Any]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return {}
    with open(fd, "rb") as file:
        if not _is_trusted(os.fstat(fd)):
            say_once(
                "%s is left out: settings of a lake count if the file belongs to you and nobody else can write to "
                "it (chown, chmod 644); else pass --config",
                str(path),
            )
            return {}
        data = file.read()
    said = _parsed(path, data)
    if refused := sorted(OPENERS_ONLY & set(said)):
        say_once("%s: left out %s, which a lake cannot say of itself; set %s", str(path), ", ".join(refused), NAME)
    said = {name: value for name, value in said.items() if name not in OPENERS_ONLY}
    tame, reasons = harmless(said)
    if not reasons or is_recorded(path, data):
        return said
    lake = path.parent.parent if path.parent.name == "_lithify" else path.parent
    say_once(
        "%s: left out %s. It may have come with the lake: look into it; if it is meant, say so once with "
        "`lithify set --lake %s --as-it-is`, or pass --config FILE",
        str(path),
        "; ".join(reasons.values()),
        str(lake),
    )
    return tame


def user_folder() -> Path:
    """Where this user keeps settings of Lithify, apart from every lake and every project."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")) / "lithify"


# -- which files of lakes this user has written, and how they were then


def record_file() -> Path:
    return user_folder() / "lake_settings.json"


def hash_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def is_recorded(path: PurePath, data: bytes) -> bool:
    try:
        return hash_of(data) in recorded(record_file().read_bytes()).get(os.path.realpath(path), ())
    except OSError:
        return False


def recorded(content: bytes) -> dict[str, list[str]]:
    """By the real path of a file, hashes of what was written to it last."""
    try:
        return {str(path): [str(known) for known in hashes] for path, hashes in json.loads(content).items()}
    except (ValueError, AttributeError, TypeError) as error:
        logger.warning("%s cannot be read (%s): what it says is left out", record_file(), error)
        return {}


def _is_trusted(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def check_trusted(path: PurePath) -> None:
    """What others may have written must not become ours by being written again."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not _is_trusted(found):
        raise InvalidRequest(
            f"{path} belongs to somebody else, or others can write to it, so it counts for nothing: look into it, "
            "then make it yours (chown, chmod 644), or delete it"
        )


_in_use: ContextVar[SettingsFiles | None] = ContextVar("settings files", default=None)


class _Source(PydanticBaseSettingsSource):
    def __init__(self, settings: type[BaseSettings], found: dict[str, Any]) -> None:
        super().__init__(settings)
        self._found = found

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return self._found.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return self._found


def _are_one(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False


def with_setting(text: str, name: str, value: str | None) -> str:
    """A file of settings with one of them set to a value of TOML, or without it. All else stays as it was written."""
    before = tomllib.loads(text)
    lines = text.splitlines(keepends=True)
    end = next((at for at, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
    spelled = re.escape(name)
    kept = [line for line in lines[:end] if not re.match(rf"\s*(?:{spelled}|\"{spelled}\"|'{spelled}')\s*=", line)]
    if kept and not kept[-1].endswith("\n"):
        kept[-1] += "\n"
    added = [] if value is None else [f"{name} = {value}\n"]
    after = "".join([*kept, *added, *lines[end:]])
    wanted = {key: said for key, said in before.items() if key != name} | (
        {} if value is None else tomllib.loads(f"{name} = {value}")
    )
    try:
        if tomllib.loads(after) == wanted:
            return after
    except tomllib.TOMLDecodeError:
        pass
    raise InvalidRequest(f"{name} stands in several lines of the file, or in a table: change it there by hand")


def toml_value(text: str) -> str:
    """What somebody typed as a value of TOML: numbers, true, lists and tables as they are, anything else as text."""
    try:
        tomllib.loads(f"value = {text}")
        return text
    except tomllib.TOMLDecodeError:
        return text_value(text)


def text_value(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def harmless(found: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """What may stand in a file that somebody else may have written, and why each of the others may not, by name."""
    reasons = {name: f"{name} ({TOLD_ONLY[name]})" for name in found if not _may_stand_here(name, found[name])}
    kept, schedules = _only_when_asked(found)
    reasons |= {name: f"{name} (it runs by itself)" for name in schedules}
    return {name: value for name, value in kept.items() if name not in reasons}, reasons


def _may_stand_here(name: str, value: Any) -> bool:
    if name == "spark_master":  # this machine, as without the setting
        return isinstance(value, str) and (value == "local" or value.startswith("local["))
    return name not in TOLD_ONLY


def _only_when_asked(found: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Pipelines without what makes them run by themselves, and the names of that."""
    pipelines, left_out = found.get("pipelines"), list[str]()
    if not isinstance(pipelines, Mapping):
        return dict(found), left_out
    kept = {}
    for name, body in pipelines.items():
        if isinstance(body, Mapping):
            left_out += [f"pipelines.{name}.{key}" for key in RUNS_BY_ITSELF if key in body]
            body = {key: value for key, value in body.items() if key not in RUNS_BY_ITSELF}
        kept[name] = body
    return {**found, "pipelines": kept}, left_out


def _parsed(path: Path, data: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(data.decode())
    except ValueError as error:  # also what is no UTF-8
        where = f"{NAME} in this folder" if str(path) == NAME else str(path)
        raise InvalidRequest(f"{where} is no TOML: {error}") from error


def say_once(message: str, *values: str) -> None:
    """Once in a process."""
    if (message, *values) not in _said:
        _said.add((message, *values))
        logger.warning(message, *values)
