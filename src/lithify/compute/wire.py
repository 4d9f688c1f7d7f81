"""What a worker and its supervisor say to each other: one JSON object per line.

The first line to the worker is its `Config`. Then, each way:

    {"id", "function": "module:name", "where": "executors" | "driver", "tasks": [pickles]}          an order
    {"heartbeat": n, "id", "done", "of", "rss_bytes"}                                               every second
    {"id", "results": [pickles]}                                                                    an answer
    {"id", "error": pickle, "class": "recoverable" | "permanent" | "unknown", "reason"}             another

Pickles are base64 text. A heartbeat without orders has an `id` of null; `done` is null where it is not known. Every
line is of one process's making and for its own child or parent: nothing here is read from anywhere else.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib import import_module
from typing import Any

from lithify.errors import InvalidRequest

HEARTBEAT_S = 1.0


@dataclass(frozen=True)
class SparkChoice:
    """How to reach or start Spark. None means: choose for this machine."""

    master: str = "local[*]"
    remote: str | None = None
    driver_memory: str | None = None
    executor_memory: str | None = None
    executor_cores: int | None = None
    shuffle_partitions: int | None = None


def spark_choice(of: object, prefix: str = "") -> dict[str, Any]:
    """What somebody says of it, as arguments: settings by the names `spark_…`."""
    return {each.name: getattr(of, prefix + each.name) for each in fields(SparkChoice)}


@dataclass(frozen=True, kw_only=True)
class Config(SparkChoice):
    """All that a worker needs to know. `memory_bytes`: for its JVM and all its tasks; None: half of the machine.
    `root`: the lake that executors must reach, `wait_s_max` how long they may take to come. `copies_folder`: where
    local copies of a lake in a bucket are kept, with at most `copies_bytes_max`.
    """

    parent: int
    scratch: str
    conf: Mapping[str, str] = field(default_factory=dict)
    memory_bytes: int | None = None
    jobs_max: int = 2
    modules: Sequence[str] = ("lithify.",)
    python_path: Sequence[str] = ()
    root: str | None = None
    wait_s_max: float = 120
    copies_folder: str | None = None
    copies_bytes_max: int | None = None

    def line(self) -> bytes:
        return line(asdict(self))

    @classmethod
    def read(cls, text: bytes) -> Config:
        return cls(**json.loads(text))


def line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def pack(value: Any) -> str:
    return base64.b64encode(pickle.dumps(value)).decode()


def unpack(text: str) -> Any:
    return pickle.loads(base64.b64decode(text))


def name_of(function: Callable[..., Any]) -> str:
    assert "<" not in function.__qualname__, f"{function.__qualname__} cannot be imported by name"
    return f"{function.__module__}:{function.__qualname__}"


def resolve(name: str, modules: Sequence[str]) -> Callable[..., Any]:
    """The function of this name, if its module begins with one of `modules`."""
    module, _, path = name.partition(":")
    if not module.startswith(tuple(modules)):
        raise InvalidRequest(f"{name} may not run on the Spark worker: only functions of {', '.join(modules)}* may")
    found: Any = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    assert callable(found), f"{name} is not a function"
    return found  # type: ignore[no-any-return]
