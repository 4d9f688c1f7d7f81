"""The grammar of statements that write, on top of sqlglot's: it reads words, expressions and queries, and this says
where in a statement they stand.

Of an expression only its extent is taken. What is built of it are SELECTs in the user's own words, which the engine
plans like any other: nothing is spelled anew, so nothing can come to mean something else.

A text is bounded before it is parsed, in length and in depth. Texts with anything whose extent depends on the dialect
(`core/sql_text.py`: odd ones) are refused: sqlglot and the engine must agree on where a string ends.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.tokenizer_core import TokenType

from lithify.core.sql_text import without_comments, words_of
from lithify.errors import InvalidRequest
from lithify.sql.guard import DEPTH_MAX, LENGTH_MAX, depth_of
from lithify.sql.statements.ddl_grammar import DdlParser
from lithify.sql.statements.long_lists import Shortened, shortened
from lithify.sql.statements.model import (
    Delete,
    Insert,
    Merge,
    OnConflict,
    Statement,
    Target,
    Update,
    When,
)
from lithify.sql.statements.value_rows import without_defaults

_DIALECT = Dialect.get_or_raise("postgres")


def parse(text: str) -> Statement:
    """One statement, or InvalidRequest."""
    if len(text) > LENGTH_MAX:
        raise InvalidRequest(
            f"the statement is longer than {LENGTH_MAX // 2**10} KiB: INSERT … SELECT from a table, or write the rows "
            "with upsert or append"
        )
    short = shortened(text)
    words = words_of(short.text)
    if words.odd:
        raise InvalidRequest(
            "the statement is not accepted: write text as '…' with '' for a quote, and names as \"…\"; no back-quotes, "
            "backslashes, dollars, braces or prefixes like E'…' outside of them"
        )
    if depth_of(words) > DEPTH_MAX:
        raise too_deep()
    try:
        return _Parser(dialect=_DIALECT, error_level=ErrorLevel.IMMEDIATE).of(short)
    except RecursionError:
        raise too_deep() from None
    except SqlglotError as error:
        details = getattr(error, "errors", None) or [{}]
        said, at = details[0].get("description") or str(error).splitlines()[0], details[0].get("highlight")
        near = f" near {at[:40]!r}" if at else ""
        raise InvalidRequest(f"the statement is not accepted: {said.rstrip('.').lower()}{near}") from error


def too_deep() -> InvalidRequest:
    return InvalidRequest(f"the statement is nested more than {DEPTH_MAX} levels deep: name its parts in a WITH")


class _Parser(DdlParser):
    def of(self, text: Shortened) -> Statement:
        tokens = list(_DIALECT.tokenize(without_comments(text.text)))
        for token in tokens:
            token.start, token.end = text.place(token.start), text.place(token.end)
        while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
            tokens.pop()
        if any(token.token_type is TokenType.SEMICOLON for token in tokens):
            raise InvalidRequest("one statement at a time: there is something after the semicolon")
        self.reset()
        self.sql, self._chunks = text.whole, [tokens]
        self._advance_chunk()
        statement = self.statement()
        if self._curr:
            self.refuse("the end of the statement")
        return statement

    def statement(self) -> Statement:
        prefix = self.with_clause()
        for word, read in (
            ("INSERT", self.insert),
            ("UPDATE", self.update),
            ("DELETE", self.delete),
            ("MERGE", self.merge),
        ):
            if self._match_text_seq(word):
                return read(prefix)
        if not prefix and (found := self.definition()) is not None:
            return found
        self.refuse("INSERT, UPDATE, DELETE, MERGE, CREATE, ALTER, DROP or TRUNCATE")

    # -- statements

    def insert(self, prefix: str) -> Insert:
        self.expect("INTO")
        target = self.target(alias=self.alias_after_as)
        columns = None
        if self._match(TokenType.L_PAREN, advance=False) and not self.begins_query(1):
            columns = self.bracketed(self.name)
        if self._match_text_seq("DEFAULT", "VALUES"):
            raise InvalidRequest(
                "INSERT … DEFAULT VALUES is not known here: name columns and give their values; those left out "
                "have their defaults"
            )
        source, marked = without_defaults(self.query())
        conflict = None
        if self._match_text_seq("ON", "CONFLICT"):
            self.in_conflict = True
            conflict = self.on_conflict(target)
        self.no_returning()
        return Insert(target, columns, prefix + source, conflict, marked)

    def on_conflict(self, target: Target) -> OnConflict:
        columns: tuple[str, ...] = ()
        if self._match(TokenType.L_PAREN, advance=False):
            columns = self.bracketed(self.name)
        self.expect("DO")
        if self._match_text_seq("NOTHING"):
            return OnConflict(columns, None)
        self.expect("UPDATE")
        self.expect("SET")
        assignments = self.assignments(target)
        return OnConflict(columns, assignments, self.where())

    def update(self, prefix: str) -> Update:
        target = self.target(alias=self.alias)
        self.expect("SET")
        assignments = self.assignments(target)
        source = self.relations() if self._match_text_seq("FROM") else None
        where = self.where()
        self.no_returning()
        return Update(target, assignments, source, where, prefix)

    def delete(self, prefix: str) -> Delete:
        self.expect("FROM")
        target = self.target(alias=self.alias)
        source = self.relations() if self._match_text_seq("USING") else None
        where = self.where()
        self.no_returning()
        return Delete(target, source, where, prefix)

    def merge(self, prefix: str) -> Merge:
        self.expect("INTO")
        target = self.target(alias=self.alias)
        self.expect("USING")
        if self._match(TokenType.L_PAREN, advance=False):
            source = self.extent(self._parse_wrapped_query)
            name = self.alias()
            if name is None:
                raise InvalidRequest("MERGE: the query after USING needs a name: USING (SELECT …) AS source")
        else:
            source, last = self.table_name()
            name = self.alias() or last
        columns = self.bracketed(self.name) if self._match(TokenType.L_PAREN, advance=False) else ()
        self.expect("ON")
        first = self._index
        condition = self._parse_disjunction()
        self._retreat(first)
        on = self.expression_text()
        whens = []
        while self._match_text_seq("WHEN"):
            whens.append(self.when(target))
        if not whens:
            self.refuse("WHEN")
        self.no_returning()
        equal = tuple(_equal(condition, target, name))
        return Merge(target, source, name, on, tuple(whens), columns, equal, prefix)

    def when(self, target: Target) -> When:
        negated = self._match_text_seq("NOT")
        self.expect("MATCHED")
        by_source = False
        if self._match_text_seq("BY"):
            if not negated or not (self._match_text_seq("SOURCE") or self._match_text_seq("TARGET")):
                self.refuse("NOT MATCHED BY SOURCE or NOT MATCHED BY TARGET")
            by_source = self._prev.text.upper() == "SOURCE"
        side = "matched" if not negated else "not matched by source" if by_source else "not matched"
        condition = self.expression_text() if self._match_text_seq("AND") else None
        self.expect("THEN")
        if self._match_text_seq("DO", "NOTHING"):
            return When(side, condition, "nothing")  # type: ignore[arg-type]
        if side == "not matched":
            self.expect("INSERT")
            return self.when_insert(condition)
        if self._match_text_seq("DELETE"):
            return When(side, condition, "delete")  # type: ignore[arg-type]
        self.expect("UPDATE")
        self.expect("SET")
        if self._match(TokenType.STAR):
            return When(side, condition, "update")  # type: ignore[arg-type]
        return When(side, condition, "update", self.assignments(target))  # type: ignore[arg-type]

    def when_insert(self, condition: str | None) -> When:
        if self._match(TokenType.STAR):
            return When("not matched", condition, "insert")
        columns = self.bracketed(self.name) if self._match(TokenType.L_PAREN, advance=False) else None
        self.expect("VALUES")
        return When("not matched", condition, "insert", columns=columns, values=self.bracketed(self.value_or_default))


def _equal(condition: exp.Expr | None, target: Target, source: str) -> Iterator[tuple[str, str]]:
    """Columns of the target and of the source that a condition has be equal, as far as its words tell."""
    there = target.alias or target.name.partition(".")[2]
    if isinstance(condition, exp.Paren):
        yield from _equal(condition.this, target, source)
    elif isinstance(condition, exp.And):
        yield from _equal(condition.left, target, source)
        yield from _equal(condition.right, target, source)
    elif isinstance(condition, exp.EQ):
        sides = {
            _folded(side.args.get("table")): side for side in (condition.left, condition.right) if _is_column(side)
        }
        if there != source and {there, source} <= set(sides):
            found = [_folded(sides[name].this) for name in (there, source)]
            if all(found):
                yield str(found[0]), str(found[1])


def _is_column(side: exp.Expr) -> bool:
    return isinstance(side, exp.Column) and side.args.get("db") is None


def _folded(identifier: exp.Expr | None) -> str | None:
    if not isinstance(identifier, exp.Identifier):
        return None
    return str(identifier.this) if identifier.args.get("quoted") else str(identifier.this).lower()
