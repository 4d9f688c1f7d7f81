"""What a command has to say: one interface, in a text version for people (Rich) and a JSON version for programs.

A command hands over the same facts either way. Results go to stdout; progress, questions and text errors go to stderr,
so that a pipe sees results only. With JSON an error is the document: `{"error": {"code": …, "message": …}}`.
"""

from __future__ import annotations

import contextlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lithify.cli.values import cell, dumps

if TYPE_CHECKING:
    from rich.console import Console

Report = Callable[[str, float | None], None]
"""Called with what is going on, and how much of it is done (0 to 1) or None."""

PIPE_WIDTH = 1000


@dataclass(frozen=True)
class Column:
    """One column of a listing: where its value is, what stands above it, how it is shown."""

    key: str
    header: str
    show: Callable[[Any], str] = cell
    right: bool = False
    style: str | None = None


class Output(ABC):
    @abstractmethod
    def message(self, text: str, document: Mapping[str, Any], *notes: str) -> None:
        """Something was done: one sentence, the facts behind it, and further lines for people."""

    @abstractmethod
    def record(self, title: str, fields: Mapping[str, Any], document: Mapping[str, Any]) -> None:
        """One thing and its properties."""

    @abstractmethod
    def listing(
        self,
        columns: Sequence[Column],
        rows: Sequence[Mapping[str, Any]],
        document: Mapping[str, Any],
        empty: str,
        title: str | None = None,
    ) -> None:
        """Many things of a kind, a line each."""

    @abstractmethod
    def note(self, text: str) -> None:
        """A line for people only."""

    @abstractmethod
    def step(self, chapter: str, title: str, time: str, result: str) -> None:
        """One line of a longer story, told while it happens."""

    @abstractmethod
    def commands(self, title: str, lines: Sequence[str]) -> None:
        """Commands to try, each on a line of its own to copy."""

    @abstractmethod
    def error(self, code: str, message: str, hint: str | None = None) -> None:
        """What went wrong, and what to do."""

    @abstractmethod
    def working(self, what: str) -> AbstractContextManager[Report]:
        """Show that something is going on; the report changes what is shown."""


class JsonOutput(Output):
    def _print(self, document: Mapping[str, Any]) -> None:
        sys.stdout.write(dumps(document, indent=2) + "\n")
        sys.stdout.flush()

    def message(self, text: str, document: Mapping[str, Any], *notes: str) -> None:
        self._print(document)

    def record(self, title: str, fields: Mapping[str, Any], document: Mapping[str, Any]) -> None:
        self._print(document)

    def listing(
        self,
        columns: Sequence[Column],
        rows: Sequence[Mapping[str, Any]],
        document: Mapping[str, Any],
        empty: str,
        title: str | None = None,
    ) -> None:
        self._print(document)

    def note(self, text: str) -> None:
        pass

    def step(self, chapter: str, title: str, time: str, result: str) -> None:
        pass

    def commands(self, title: str, lines: Sequence[str]) -> None:
        pass

    def error(self, code: str, message: str, hint: str | None = None) -> None:
        self._print({"error": {"code": code, "message": message}})

    @contextlib.contextmanager
    def working(self, what: str) -> Iterator[Report]:
        yield lambda stage, fraction: None


class TextOutput(Output):
    """Rich text. In a terminal tables keep to its width; into a pipe nothing is cut."""

    def __init__(self) -> None:
        self._out: Console | None = None
        self._err: Console | None = None

    @property
    def console(self) -> Console:
        if self._out is None:
            self._out = _console(stderr=False)
        return self._out

    @property
    def errors(self) -> Console:
        if self._err is None:
            self._err = _console(stderr=True)
        return self._err

    def message(self, text: str, document: Mapping[str, Any], *notes: str) -> None:
        self.console.print(f"[green]✓[/green] {_escaped(text)}")
        for note in notes:
            self.console.print(f"  [dim]{_escaped(note)}[/dim]")

    def record(self, title: str, fields: Mapping[str, Any], document: Mapping[str, Any]) -> None:
        from rich.table import Table

        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in fields.items():
            grid.add_row(name, _escaped(cell(value, width_max=PIPE_WIDTH)))
        if title:
            self.console.print(f"[bold]{_escaped(title)}[/bold]")
        self.console.print(grid)

    def listing(
        self,
        columns: Sequence[Column],
        rows: Sequence[Mapping[str, Any]],
        document: Mapping[str, Any],
        empty: str,
        title: str | None = None,
    ) -> None:
        if not rows:
            self.console.print(f"[dim]{_escaped(empty)}[/dim]")
            return
        from rich import box
        from rich.table import Table

        table = Table(
            box=box.SIMPLE_HEAD,
            header_style="bold",
            pad_edge=False,
            title=title,
            title_justify="left",
            title_style="bold",
        )
        lines = [[column.show(row.get(column.key)) for column in columns] for row in rows]
        shown, left_out = _fitting([c.header for c in columns], lines, self.console.width)
        for column in columns[:shown]:
            table.add_column(
                column.header, justify="right" if column.right else "left", style=column.style, no_wrap=True
            )
        for line in lines:
            table.add_row(*map(_escaped, line[:shown]))
        self.console.print(table)
        if left_out:
            names = ", ".join(c.header for c in columns[shown:])
            self.console.print(f"[dim]… {left_out} more columns do not fit here: {_escaped(cell(names))}[/dim]")

    def note(self, text: str) -> None:
        self.console.print(f"[dim]{_escaped(text)}[/dim]")

    def step(self, chapter: str, title: str, time: str, result: str) -> None:
        told = f"[bold cyan]{chapter:<11}[/bold cyan] {_escaped(f'{title:<38}')}"
        line = f"{told} [green]{time:>8}[/green]  [dim]{_escaped(result)}[/dim]"
        self.console.print(line, soft_wrap=True)

    def commands(self, title: str, lines: Sequence[str]) -> None:
        self.console.print(f"\n[bold]{_escaped(title)}[/bold]")
        for line in lines:
            self.console.print(f"  [cyan]{_escaped(line)}[/cyan]", soft_wrap=True)

    def error(self, code: str, message: str, hint: str | None = None) -> None:
        self.errors.print(f"[bold red]error:[/bold red] [red]{_escaped(message)}[/red]")
        if hint:
            self.errors.print(f"[dim]{_escaped(hint)}[/dim]")

    @contextlib.contextmanager
    def working(self, what: str) -> Iterator[Report]:
        # On the console that results go to, if that is a terminal: two on one screen would overwrite each other.
        console = self.console if self.console.is_terminal else self.errors
        if not console.is_terminal:
            yield lambda stage, fraction: None
            return
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TimeElapsedColumn(),
        )
        with Progress(
            *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
        ) as progress:
            task = progress.add_task(_escaped(what), total=None)

            def report(stage: str, fraction: float | None) -> None:
                total = None if fraction is None else 1.0
                progress.update(task, description=_escaped(stage), total=total, completed=fraction or 0.0)

            yield report


def make_output(as_json: bool) -> Output:
    return JsonOutput() if as_json else TextOutput()


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(stderr=stderr, highlight=False, width=PIPE_WIDTH)
    return console


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _fitting(headers: Sequence[str], lines: Sequence[Sequence[str]], width: int) -> tuple[int, int]:
    """How many columns fit side by side, at least one; and how many do not."""
    from rich.cells import cell_len

    used = 0
    for number, header in enumerate(headers):
        used += max([cell_len(header), *(cell_len(line[number]) for line in lines)]) + 2
        if used > width and number:
            return number, len(headers) - number
    return len(headers), 0
