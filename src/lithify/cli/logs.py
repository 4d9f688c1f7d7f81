"""Log lines: `key=value` for people, or one JSON object each for programs.

Every command says on stderr what its loggers warn of, unless its answer tells the same; `lithify run` says more.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lithify.core.json_out import dumps, jsonable

EVENT, FACTS = "lithify_event", "lithify_facts"
# What these warn of is also a problem or a reason in the report of the work.
_IN_REPORTS = frozenset({"lithify.maintenance.compact", "lithify.maintenance.fold", "lithify.compute.worker"})


def iso_time(seconds: float) -> str:
    moment = dt.datetime.fromtimestamp(seconds, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {name}={_word(value)}" for name, value in _facts(record).items())
        line = f"{iso_time(record.created)} {record.levelname} {_one_line(_message(record))}{facts}"
        return line + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": iso_time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **_facts(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return dumps(line)


def formatter(log_format: str) -> logging.Formatter:
    return JsonLines() if log_format == "json" else TextLines()


class _Lines(logging.Handler):
    def __init__(self, write: Callable[[str], None], log_format: Callable[[], str]) -> None:
        super().__init__()
        self._write, self._log_format = write, log_format

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._write(formatter(self._log_format()).format(record))
        except Exception:
            self.handleError(record)


@contextlib.contextmanager
def logging_to(
    write: Callable[[str], None], log_format: Callable[[], str], level: int, *, all_of_it: bool = False
) -> Iterator[None]:
    """What Lithify's loggers have to say is written, a line each, until the block ends, and goes nowhere else.

    Without `all_of_it`, what the answer of a command, or an event, tells anyway is left out.
    """
    logger = logging.getLogger("lithify")
    handler = _Lines(write, log_format)
    if not all_of_it:
        handler.addFilter(_News())
    before = logger.handlers, logger.level, logger.propagate
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.handlers, logger.propagate = before[0], before[2]
        logger.setLevel(before[1])


class _News(logging.Filter):
    """Not what was just said, and not what is told anyway; a traceback is told nowhere else."""

    _said = ""

    def filter(self, record: logging.LogRecord) -> bool:
        before, self._said = self._said, record.getMessage()
        told = record.name in _IN_REPORTS or hasattr(record, EVENT)
        return bool(record.exc_info) or not (told or before == self._said)


def print_line(log_format: str, message: str, time_ms: int, facts: Mapping[str, Any]) -> None:
    """One line of the same kind, as a result on stdout."""
    record = logging.LogRecord("lithify.run", logging.INFO, "", 0, "%s", (message,), None)
    record.created = time_ms / 1000
    setattr(record, FACTS, facts)
    sys.stdout.write(formatter(log_format).format(record) + "\n")
    sys.stdout.flush()


def _message(record: logging.LogRecord) -> str:
    return str(getattr(record, EVENT, "")) or record.getMessage()


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    facts = getattr(record, FACTS, {})
    return {name: jsonable(value) for name, value in facts.items() if value not in (None, "")}


def _word(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    plain = text and all(c.isprintable() and c not in " \"'=" for c in text)
    return text if plain else json.dumps(text, ensure_ascii=False)


def _one_line(text: str) -> str:
    return " ".join(text.split())
