"""Log lines of a long-running command: `key=value` for people, or one JSON object each for programs."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from lithify.cli.values import dumps, jsonable

FACTS = "lithify_facts"


def iso_time(seconds: float) -> str:
    moment = dt.datetime.fromtimestamp(seconds, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {name}={_word(value)}" for name, value in _facts(record).items())
        line = f"{iso_time(record.created)} {record.levelname} {_one_line(record.getMessage())}{facts}"
        return line + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": iso_time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_facts(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return dumps(line)


def formatter(log_format: str) -> logging.Formatter:
    return JsonLines() if log_format == "json" else TextLines()


@contextlib.contextmanager
def logging_to(stream: TextIO, log_format: str, name: str = "lithify", level: int = logging.INFO) -> Iterator[None]:
    """Everything that `name` and what lies below it has to say goes to `stream`, until the block ends."""
    logger = logging.getLogger(name)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter(log_format))
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]


def print_line(log_format: str, message: str, time_ms: int, facts: Mapping[str, Any]) -> None:
    """One line of the same kind, as a result on stdout."""
    record = logging.LogRecord("lithify.run", logging.INFO, "", 0, "%s", (message,), None)
    record.created = time_ms / 1000
    setattr(record, FACTS, facts)
    sys.stdout.write(formatter(log_format).format(record) + "\n")
    sys.stdout.flush()


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    facts = getattr(record, FACTS, {})
    return {name: jsonable(value) for name, value in facts.items() if value not in (None, "")}


def _word(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    plain = text and all(c.isprintable() and c not in " \"'=" for c in text)
    return text if plain else json.dumps(text, ensure_ascii=False)


def _one_line(text: str) -> str:
    return " ".join(text.split())
