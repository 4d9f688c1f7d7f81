"""Reading a statement word by word, on top of sqlglot's parser: names, and the extents of expressions and queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from sqlglot import exp
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import Token, TokenType

from lithify.core.names import parse_table_name
from lithify.errors import InvalidRequest
from lithify.sql.statements.model import EXCLUDED, Assignment, Target

T = TypeVar("T")
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_END = "the end"


class Words(PostgresParser):
    # What stands in double quotes is a name, whatever it spells.
    TEXT_MATCH_EXCLUDED_TOKENS = PostgresParser.TEXT_MATCH_EXCLUDED_TOKENS | {TokenType.IDENTIFIER}
    # Within ON CONFLICT, where `excluded` is the row that was to be inserted.
    in_conflict = False

    # -- parts

    def with_clause(self) -> str:
        if not self._match_text_seq("WITH", advance=False):
            return ""
        return self.extent(self._parse_with) + " "

    def target(self, alias: Callable[[], str | None]) -> Target:
        return Target(self.full_name(), alias())

    def full_name(self) -> str:
        parts = [self.name()]
        while self._match(TokenType.DOT):
            parts.append(self.name())
        return str(parse_table_name(".".join(parts)))

    def table_name(self) -> tuple[str, str]:
        """As it was written, and its last part."""
        first, last = self._index, self.name()
        while self._match(TokenType.DOT):
            last = self.name()
        return self.text_since(first), last

    def alias(self) -> str | None:
        if self._match_text_seq("AS"):
            return self.name()
        if self._curr.token_type in _NAMES:
            return self.name()
        return None

    def alias_after_as(self) -> str | None:
        return self.name() if self._match_text_seq("AS") else None

    def name(self) -> str:
        """As the engine folds it."""
        token = self._curr
        if token.token_type is TokenType.IDENTIFIER:
            self._advance()
            return token.text
        if not token or not token.text.isidentifier():
            self.refuse("a name")
        self._advance()
        return token.text.lower() if token.text.isascii() else token.text

    def assignments(self, target: Target) -> tuple[Assignment, ...]:
        return self.listed(lambda: self.assignment(target))

    def assignment(self, target: Target) -> Assignment:
        first, before, column = self._index, list[str](), self.name()
        while self._match(TokenType.DOT):
            before.append(column)
            column = self.name()
        if before and before != [target.called] and (target.alias or before != target.name.split(".")):
            raise InvalidRequest(
                f"SET {self.text_since(first)}: the statement calls its table {target.called}, and of a struct all "
                f"fields are set together: SET {before[-1]} = named_struct('{column}', …)"
            )
        if not self._match(TokenType.EQ):
            self.refuse("=")
        return Assignment(column, self.value_or_default())

    def value_or_default(self) -> str | None:
        """None: DEFAULT."""
        return None if self._match_text_seq("DEFAULT") else self.expression_text()

    def where(self) -> str | None:
        return self.expression_text() if self._match_text_seq("WHERE") else None

    def no_returning(self) -> None:
        if self._match_text_seq("RETURNING"):
            raise InvalidRequest(
                "RETURNING is not answered: a statement tells how many rows it wrote; SELECT them then"
            )

    def query(self) -> str:
        return self.extent(self._parse_ddl_select)

    def begins_query(self, ahead: int) -> bool:
        at = self._index + ahead
        while at < len(self._tokens) and self._tokens[at].token_type is TokenType.L_PAREN:
            at += 1
        return at < len(self._tokens) and self._tokens[at].text.upper() in ("SELECT", "WITH", "VALUES")

    def relations(self) -> str:
        return self.extent(lambda: self._parse_table(joins=True))

    def expression_text(self) -> str:
        return self.extent(self._parse_disjunction)

    def _parse_wrapped_query(self) -> exp.Expr | None:
        self._match_l_paren()
        found = self._parse_ddl_select()
        self._match_r_paren()
        return found

    # -- words

    def extent(self, read: Callable[[], object]) -> str:
        first = self._index
        if not self._curr or read() is None or self._index == first:
            self._retreat(first)
            self.refuse("a value or a query")
        return self.text_since(first)

    def text_since(self, first: int) -> str:
        """What was read since, in the statement's own words; columns of `excluded` by the names they have there."""
        tokens = self._tokens[first : self._index]
        text, end = "", tokens[0].start
        for position, token in enumerate(tokens):
            if self.in_conflict and _of_excluded(tokens, position):
                name = token.text if token.token_type is TokenType.IDENTIFIER else token.text.lower()
                text += self.sql[end : token.start] + '"' + (EXCLUDED + name).replace('"', '""') + '"'
                end = token.end + 1
        return text + self.sql[end : tokens[-1].end + 1]

    def expect(self, word: str) -> None:
        if not self._match_text_seq(word):
            self.refuse(word)

    def listed(self, read: Callable[[], T]) -> tuple[T, ...]:
        found = [read()]
        while self._match(TokenType.COMMA):
            found.append(read())
        return tuple(found)

    def bracketed(self, read: Callable[[], T]) -> tuple[T, ...]:
        if not self._match(TokenType.L_PAREN):
            self.refuse("(")
        found = self.listed(read)
        if not self._match(TokenType.R_PAREN):
            self.refuse(")")
        return found

    def refuse(self, wanted: str) -> NoReturn:
        found = repr(self.sql[self._curr.start : self._curr.end + 1][:40]) if self._curr else _END
        raise InvalidRequest(f"the statement is not accepted: {wanted} should stand where {found} is")


def _of_excluded(tokens: list[Token], position: int) -> bool:
    """Whether this is the name of a column behind `excluded.`"""
    return (
        position >= 2
        and tokens[position - 1].token_type is TokenType.DOT
        and tokens[position - 2].text.lower() == "excluded"
        and (position < 3 or tokens[position - 3].token_type is not TokenType.DOT)
        and (position + 1 >= len(tokens) or tokens[position + 1].token_type is not TokenType.L_PAREN)
    )
