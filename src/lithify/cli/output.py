"""What a command has to say, to programs as JSON (`Output`) and to people as text (`TextOutput`, with Rich).

A command hands over the same facts either way. Results go to stdout; progress, questions and text errors go to stderr,
so that a pipe sees results only. With JSON an error is the document: `{"error": {"code": …, "message": …}}`.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lithify.cli.values import bytes_cell, cell, count_cell, seconds_cell
from lithify.core.json_out import dumps
from lithify.core.wording import plural

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

Report = Callable[[str, float | None], None]
"""Called with what is going on, and how much of it is done (0 to 1) or None."""

Document = Mapping[str, Any]
PIPE_WIDTH = 1000
WRAPPED_WIDTH_MIN = 24
LINE_EVERY_S = 5.0


@dataclass(frozen=True)
class Column:
    """One column of a listing: where its value is, what stands above it, how it is shown.

    `wrap`: text of any length, broken into lines where it does not fit; the last column to be left out.
    """

    key: str
    header: str
    show: Callable[[Any], str] = cell
    right: bool = False
    style: str | None = None
    wrap: bool = False


def long_text(value: Any) -> str:
    """Shown whole, in a column that wraps."""
    return cell(value, PIPE_WIDTH)


def texts(**headers: str) -> tuple[Column, ...]:
    return tuple(Column(key, header) for key, header in headers.items())


def counts(**headers: str) -> tuple[Column, ...]:
    return tuple(Column(key, header, count_cell, right=True) for key, header in headers.items())


def sizes(**headers: str) -> tuple[Column, ...]:
    return tuple(Column(key, header, bytes_cell, right=True) for key, header in headers.items())


TABLE = Column("table", "table", style="bold")
TIME = Column("seconds", "time", seconds_cell, right=True)
WHY = Column("why", "why", long_text, wrap=True)


class Output:
    """For programs: a document of JSON. What is for people only says nothing."""

    def message(self, text: str, document: Document, *notes: str, healthy: bool = True) -> None:
        """Something was done: one sentence, the facts behind it, and further lines for people."""
        self._print(document)

    def record(self, title: str, fields: Document, document: Document) -> None:
        """One thing and its properties; the items of a tuple stand below each other."""
        self._print(document)

    def listing(self, columns: Sequence[Column], rows: Sequence[Document], document: Document, empty: str) -> None:
        """Many things of a kind, a line each."""
        self._print(document)

    def problems(self, lines: Sequence[str]) -> None:
        """What went wrong with some of many things, for people: each problem once, and whole."""

    def note(self, text: str) -> None:
        """A line for people only."""

    def verbatim(self, text: str, document: Document) -> None:
        """Something for another program to read, as it stands."""
        self._print(document)

    def aside(self, text: str) -> None:
        """A line on stderr that is no part of the answer. It does not run into what the terminal shows already."""
        self.log_line(text)

    def log_line(self, line: str) -> None:
        """A line of a log, on stderr."""
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def step(self, chapter: str, title: str, time: str, result: str) -> None:
        """One line of a longer story, told while it happens."""

    def commands(self, title: str, lines: Sequence[str]) -> None:
        """Commands to try, each on a line of its own to copy."""

    def error(self, code: str, message: str, hint: str | None = None) -> None:
        """What went wrong, and what to do."""
        self._print({"error": {"code": code, "message": message}})

    @contextlib.contextmanager
    def working(self, what: str, *, logs: bool = False) -> Iterator[Report]:
        """Show that something is going on; the report changes what is shown. `logs`: it writes lines of its own."""
        yield lambda stage, fraction: None

    def leave(self) -> None:
        """Give the terminal back as it was: the process is about to end without unwinding."""

    def _print(self, document: Document) -> None:
        sys.stdout.write(dumps(document, indent=2) + "\n")
        sys.stdout.flush()


class TextOutput(Output):
    """Rich text. In a terminal tables keep to its width; into a pipe nothing is cut."""

    def __init__(self) -> None:
        self._out: Console | None = None
        self._err: Console | None = None
        self._live: Progress | None = None

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

    def message(self, text: str, document: Document, *notes: str, healthy: bool = True) -> None:
        mark = "[green]✓[/green]" if healthy else "[red]✗[/red]"
        self.console.print(f"{mark} {_escaped(text)}")
        for note in notes:
            self.console.print(f"  [dim]{_escaped(note)}[/dim]")

    def record(self, title: str, fields: Document, document: Document) -> None:
        from rich.table import Table

        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in fields.items():
            for number, line in enumerate(value if isinstance(value, tuple) else (value,)):
                grid.add_row("" if number else name, _escaped(cell(line, width_max=PIPE_WIDTH)))
        if title:
            self.console.print(f"[bold]{_escaped(title)}[/bold]")
        self.console.print(grid)

    def listing(self, columns: Sequence[Column], rows: Sequence[Document], document: Document, empty: str) -> None:
        if not rows:
            self.console.print(f"[dim]{_escaped(empty)}[/dim]")
            return
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
        lines = [[column.show(row.get(column.key)) for column in columns] for row in rows]
        shown = _fitting(columns, lines, self.console.width)
        for column in (columns[number] for number in shown):
            table.add_column(
                column.header,
                justify="right" if column.right else "left",
                style=column.style,
                no_wrap=not column.wrap,
                overflow="fold" if column.wrap else "ellipsis",
            )
        for line in lines:
            table.add_row(*(_escaped(line[number]) for number in shown))
        self.console.print(table)
        if left_out := [column.header for number, column in enumerate(columns) if number not in shown]:
            verb = "does" if len(left_out) == 1 else "do"
            names = _escaped(", ".join(left_out))
            self.console.print(f"[dim]… {plural(len(left_out), 'more column')} {verb} not fit here: {names}[/dim]")

    def problems(self, lines: Sequence[str]) -> None:
        for line in dict.fromkeys(lines):
            self.console.print(f"[red]{_escaped(_printable(line))}[/red]")

    def note(self, text: str) -> None:
        self.console.print(f"[dim]{_escaped(text)}[/dim]")

    def verbatim(self, text: str, document: Document) -> None:
        sys.stdout.write(text + "\n")

    def aside(self, text: str) -> None:
        # The terminal may just have shown ^C on the line of the live view.
        start = "\n" if self.errors.is_terminal else ""
        self.log_line(start + text)

    def log_line(self, line: str) -> None:
        if self._live is not None and self.errors.is_terminal:
            self._live.console.print(_escaped(line), soft_wrap=True)
        else:
            super().log_line(line)

    def leave(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

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
    def working(self, what: str, *, logs: bool = False) -> Iterator[Report]:
        # On the console that results go to, if that is a terminal: two on one screen would overwrite each other.
        console = self.console if self.console.is_terminal else self.errors
        if not console.is_terminal:
            with contextlib.nullcontext(lambda stage, fraction: None) if logs else _told(what, self.log_line) as report:
                yield report
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

            self._live = progress
            try:
                yield report
            finally:
                self._live = None


@contextlib.contextmanager
def _told(what: str, log_line: Callable[[str], None], every_s: float = LINE_EVERY_S) -> Iterator[Report]:
    """Where nobody sees a spinner, a line now and then of work that takes longer than that."""
    started_s, ended = time.monotonic(), threading.Event()
    now = [what, ""]

    def report(stage: str, fraction: float | None) -> None:
        now[:] = stage, "" if fraction is None else f" {fraction:.0%},"

    def tell() -> None:
        while not ended.wait(every_s):
            stage, share = now
            log_line(f"{_printable(stage)}:{share} {time.monotonic() - started_s:.0f} s")

    teller = threading.Thread(target=tell, name="lithify-progress", daemon=True)
    teller.start()
    try:
        yield report
    finally:
        ended.set()
        teller.join()


def make_output(as_json: bool) -> Output:
    return Output() if as_json else TextOutput()


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(stderr=stderr, highlight=False, width=PIPE_WIDTH)
    return console


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _fitting(columns: Sequence[Column], lines: Sequence[Sequence[str]], width: int) -> list[int]:
    """The columns that fit side by side, at least one. Those that wrap keep some room while others are left out."""
    from rich.cells import cell_len

    def needed(number: int) -> int:
        natural = max([cell_len(columns[number].header), *(cell_len(line[number]) for line in lines)])
        return min(natural, WRAPPED_WIDTH_MIN) if columns[number].wrap else natural

    # Three characters between two columns, and one at either edge.
    left = width - 2
    fitting: list[int] = []
    wrapped = [number for number, column in enumerate(columns) if column.wrap]
    plain = [number for number, column in enumerate(columns) if not column.wrap]
    for number in [*plain[:1], *wrapped, *plain[1:]]:
        left -= needed(number) + (3 if fitting else 0)
        if left < 0 and fitting:
            if columns[number].wrap:
                left += needed(number) + 3
                continue
            break
        fitting.append(number)
    return sorted(fitting)
