"""Write docs/api.md from what the code says about itself: `python tools/api_page.py`. A test compares the two.

Methods stand in the order of their class, answers with what their fields mean. A docstring that is missing here is
missing there: write it in the code.
"""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import lithify
from lithify.client.lake import RemoteLake
from lithify.client.table import RemoteTable
from lithify.core.fields import texts_of
from lithify.lake.cache import Cache

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
HEAD = """# Python API

Made from the docstrings by `python tools/api_page.py`. Whatever is not listed here may change without notice. The
[settings of lakes and options of tables](settings.md) have a page of their own.

`Lake(path)` opens a lake here, [`lithify.connect(address)`](#through-a-service) one behind a service. Both take the
same calls.
"""
# Of before: they still work, and warn.
INTERNAL = {"Table": {"feed_until"}}


def page() -> str:
    parts = [HEAD]
    for kind in (lithify.Lake, lithify.Table, Cache, lithify.Pipeline, lithify.Erasure):
        parts += [f"## {kind.__name__}\n", f"{_doc(kind)}\n", *_members(kind)]
    parts += ["## Through a service\n", *_function("connect", lithify.connect), *_only_local()]
    parts.append("## Backups\n")
    for function in (lithify.create_backup, lithify.restore_backup, lithify.verify_backup, lithify.remove_backups):
        parts += _function(function.__name__, function)
    parts += ["## Receipts\n", *_function("verify_receipt", lithify.verify_receipt)]
    parts.append("## Answers\n")
    classes = [getattr(lithify, name) for name in sorted(lithify.__all__) if inspect.isclass(getattr(lithify, name))]
    for kind in classes:
        if dataclasses.is_dataclass(kind) and kind is not lithify.Settings:
            parts += [f"### {kind.__name__}\n", f"{_doc(kind)}\n", *_fields(kind)]
    first, tree, *rest = (inspect.getdoc(lithify.errors) or "").split("\n\n")
    parts += [
        "## Errors\n",
        f"{first}\n",
        f"```\n{inspect.cleandoc(tree)}\n```\n",
        *(f"{_reflowed(part)}\n" for part in rest),
    ]
    return "\n".join(parts)


def _members(kind: type) -> list[str]:
    ours = [base for base in reversed(kind.__mro__) if base.__module__.startswith("lithify.")]
    found = {name: value for base in ours for name, value in vars(base).items()}
    parts = []
    for name, value in found.items():
        if name.startswith("_") or name in INTERNAL.get(kind.__name__, ()):
            continue
        if isinstance(value, property):
            parts.append(f"**`{name}`**  \n{_doc(value)}\n")
        elif inspect.isfunction(value):
            other = value.__name__
            parts += _function(name, value) if other == name else [f"**`{name}`**: another name of `{other}`.\n"]
    return parts


def _function(name: str, function: Any) -> list[str]:
    signature = inspect.signature(function)
    shown, stars = [], False
    for parameter in list(signature.parameters.values()):
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not stars:
            shown.append("*")
            stars = True
        if parameter.kind is parameter.VAR_POSITIONAL:
            stars = True
        prefix = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        text = f"{prefix}{parameter.name}"
        if parameter.annotation not in (parameter.empty, "Any"):
            text += f": {parameter.annotation}"
        if parameter.default is not parameter.empty:
            default = "…" if callable(parameter.default) else repr(parameter.default)
            text += f" = {default}" if ":" in text else f"={default}"
        shown.append(text)
    answer = "" if signature.return_annotation in (signature.empty, "None") else f" → `{signature.return_annotation}`"
    return [f"**`{name}({', '.join(shown)})`**{answer}  \n{_doc(function)}\n"]


def _only_local() -> list[str]:
    """What a lake behind a service cannot do, told by its own refusals."""
    lists = []
    for local, remote in ((lithify.Lake, RemoteLake), (lithify.Table, RemoteTable)):
        names = [name for name, value in vars(remote).items() if _refuses(value)]
        names = [name for name in names if name not in INTERNAL.get(local.__name__, ())]
        lists.append(f"{local.__name__}: {', '.join(f'`{name}`' for name in names)}")
    return [f"Refused through a service, because they need the folder. Of {'; of '.join(lists)}.\n"]


def _refuses(value: Any) -> bool:
    code = getattr(value.fget if isinstance(value, property) else value, "__code__", None)
    return code is not None and "only_local" in code.co_names and code.co_name != "only_local"


def _fields(kind: type) -> list[str]:
    texts = texts_of(kind)
    names = [field.name for field in dataclasses.fields(kind) if not field.name.startswith("_")]
    if not any(texts[name] for name in names):
        return [f"Fields: {', '.join(f'`{name}`' for name in names)}.\n"]
    lines = ["| field | |", "|---|---|"]
    for name in names:
        said = next((part for part in texts[name] if isinstance(part, str)), "")
        lines.append(f"| `{name}` | {said} |")
    return ["\n".join(lines) + "\n"]


def _doc(thing: Any) -> str:
    text = inspect.getdoc(thing) or ""
    return "" if text.startswith(f"{getattr(thing, '__name__', '')}(") else _reflowed(text)  # a dataclass's own


def _reflowed(text: str) -> str:
    """Paragraphs on one line each, without what only the code's reader needs."""
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))


if __name__ == "__main__":
    PAGE.write_text(page())
