"""The tables of docs/settings.md, made from the declarations; run as a program, it writes them anew."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lithify import Settings
from lithify.options.table_options import OPTIONS, Option

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
UNITS = (("PiB", 2**50), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
SETTING = re.compile(r"(?:^\| `\w+` \|.*\|\n)+", re.MULTILINE)
OPTION = re.compile(r"(?:^- `\w+` \(.*\): .*\n)+", re.MULTILINE)


def made(page: str) -> str:
    """The page with what is declared now."""
    settings = "".join(_setting(name) for name in Settings.model_fields)
    options = "".join(_option(option) for option in OPTIONS.values())
    return OPTION.sub(lambda _: options, SETTING.sub(lambda _: settings, page, count=1), count=1)


def _setting(name: str) -> str:
    field = Settings.model_fields[name]
    text = field.description or OPTIONS[name].help
    default = (
        "the operating system's user"
        if name == "actor"
        else _default(name, field.get_default(call_default_factory=True))
    )
    return f"| `{name}` | {default} | {text.replace('|', chr(92) + '|')} |\n"


def _default(name: str, value: Any) -> str:
    if value is None:
        return "none"
    if value in ((), {}):
        return "empty"
    shown = ",".join(value) if isinstance(value, tuple) else str(value)
    size = f" ({_size(value)})" if "bytes" in name and value else ""
    return f"`{shown}`{size}"


def _size(value: float) -> str:
    unit, factor = next(((unit, factor) for unit, factor in UNITS if value >= factor), ("bytes", 1))
    return f"{value / factor:g} {unit}" if value else "0"


def _option(option: Option) -> str:
    number = _size if "bytes" in option.name else "{:,}".format
    if option.low is not None:
        allowed = f"{number(option.low)} to {number(option.high)}"
    elif option.name == "tiers":
        allowed = 'a list like `[{"name": "hourly", "files_min": 20}]`'
    elif option.name == "expires":
        allowed = "like `placed + interval '90 days'`"
    elif isinstance(option.default, str):
        allowed = option.allowed
    else:
        allowed = "column names or none"
    default = (
        "never"
        if option.name == "expires"
        else "automatic"
        if option.default is None
        else option.default
        if isinstance(option.default, str)
        else number(option.default)
        if option.default != ()
        else "none"
    )
    return f"- `{option.name}` ({default}; {allowed}): {option.help}\n"


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text()))
