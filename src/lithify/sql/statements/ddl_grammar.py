"""The grammar of statements about tables: CREATE, ALTER, DROP and TRUNCATE."""

from __future__ import annotations

from typing import Literal

from sqlglot.tokenizer_core import TokenType

from lithify.errors import InvalidRequest
from lithify.sql.statements.model import (
    AddColumn,
    AlterColumn,
    Column,
    Constant,
    CreateTable,
    Defining,
    DropTable,
    SetOptions,
    Truncate,
    Value,
)
from lithify.sql.statements.words import Words

# What SQL calls them and `core/type_text.py` does not.
_TYPES = {
    "double precision": "double",
    "timestamptz": "timestamp",
    "timestamp with time zone": "timestamp",
    "timestamp": "timestamp_ntz",
    "timestamp without time zone": "timestamp_ntz",
    "datetime": "timestamp_ntz",
    "numeric": "decimal",
    "char": "string",
    "character varying": "string",
    "blob": "binary",
    "bytea": "binary",
    "varbinary": "binary",
}
_AFTER_TYPE = (
    "NOT",
    "NULL",
    "PRIMARY KEY",
    "DEFAULT",
    "UNIQUE",
    "REFERENCES",
    "CHECK",
    "COMMENT",
    "GENERATED",
    "COLLATE",
)


class DdlParser(Words):
    def definition(self) -> Defining | None:
        if self._match_text_seq("CREATE"):
            return self.create()
        if self._match_text_seq("ALTER"):
            return self.alter()
        if self._match_text_seq("DROP"):
            self.expect("TABLE")
            if_exists = self._match_text_seq("IF", "EXISTS")
            return DropTable(self.full_name(), if_exists)
        if self._match_text_seq("TRUNCATE"):
            self._match_text_seq("TABLE")
            return Truncate(self.full_name())
        return None

    def create(self) -> CreateTable:
        if self._match_text_seq("OR", "REPLACE"):
            raise InvalidRequest("CREATE OR REPLACE is not done: DROP TABLE IF EXISTS, then CREATE TABLE")
        self.expect("TABLE")
        if_not_exists = self._match_text_seq("IF", "NOT", "EXISTS")
        name = self.full_name()
        columns: list[Column] = []
        key: tuple[str, ...] = ()
        if self._match(TokenType.L_PAREN):
            while True:
                if self._match(TokenType.PRIMARY_KEY):
                    key = self.once(key, self.bracketed(self.name))
                else:
                    column, is_key = self.column(self.name())
                    columns.append(column)
                    key = self.once(key, (column.name,)) if is_key else key
                if not self._match(TokenType.COMMA):
                    break
            if not self._match(TokenType.R_PAREN):
                self.refuse(")")
        settings = self.bracketed(self.setting) if self._match_text_seq("WITH") else ()
        source = self.query() if self._match_text_seq("AS") else None
        if source is None and not columns:
            self.refuse("the columns, or AS and a query,")
        if source is not None and columns:
            raise InvalidRequest("CREATE TABLE … AS SELECT has the columns of its query: name and cast them there")
        return CreateTable(name, tuple(columns), key, settings, source, if_not_exists)

    def once(self, key: tuple[str, ...], found: tuple[str, ...]) -> tuple[str, ...]:
        if key:
            raise InvalidRequest("CREATE TABLE names two keys: say PRIMARY KEY (a, b) for one of several columns")
        return found

    def column(self, name: str) -> tuple[Column, bool]:
        """And whether it is the key."""
        kind = self.type_text()
        nullable, is_key, default = True, False, None
        while True:
            if self._match_text_seq("NOT", "NULL"):
                nullable = False
            elif self._match(TokenType.PRIMARY_KEY):
                is_key = True
            elif self._match_text_seq("DEFAULT"):
                default = self.constant(name)
            elif not self._match_text_seq("NULL"):
                break
        if self._curr and self._curr.text.upper() in _AFTER_TYPE:
            said = self._curr.text.upper()
            raise InvalidRequest(
                f"column {name!r}: {said} is not known here; it can be NOT NULL and PRIMARY KEY, and have a DEFAULT"
            )
        return Column(name, kind, nullable, default), is_key

    def constant(self, column: str) -> Constant | None:
        """A default: a value as it stands, and no expression. None: NULL, which every column has without."""
        if self._match_text_seq("NULL"):
            return None
        minus = "-" if self._match(TokenType.DASH) else ""
        for word in ("DATE", "TIMESTAMP", "TIMESTAMPTZ"):
            if not minus and self._match_text_seq(word):
                break
        token = self._curr
        known: dict[TokenType, Literal["number", "text", "bytes"]] = {
            TokenType.NUMBER: "number",
            TokenType.STRING: "text",
            TokenType.HEX_STRING: "bytes",
        }
        kind = known.get(token.token_type) if token else None
        if token and token.text.upper() in ("TRUE", "FALSE") and kind is None and not minus:
            self._advance()
            return Constant("bool", token.text.lower())
        if kind is None or (minus and kind != "number"):
            raise InvalidRequest(
                f"column {column!r}: a default is a value (a number, 'text', true, DATE '2026-11-15', X'00ff', NULL), "
                "and no expression"
            )
        self._advance()
        return Constant(kind, minus + token.text)

    def type_text(self) -> str:
        """What stands between a name and what follows a type, as `core/type_text.py` spells it."""
        first, depth = self._index, 0
        while self._curr:
            text = " ".join(self._curr.text.upper().split())
            if depth == 0 and (text in (",", ")", "=") or text in _AFTER_TYPE):
                break
            depth += (text in ("(", "<")) - (text in (")", ">"))
            self._advance()
        if self._index == first:
            self.refuse("a type")
        words = " ".join(self.text_since(first).lower().split())
        head, bracket, rest = words.partition("(")
        known = _TYPES.get(head.strip(), head.strip())
        if known == "decimal" and not bracket:
            raise InvalidRequest("a decimal needs its digits: decimal(12, 2)")
        sized = bracket and known != "string" and head.strip() != "varchar"
        return f"{known}({rest}" if sized else known

    def setting(self) -> tuple[str, Value]:
        name = self.name()
        if not self._match(TokenType.EQ):
            self.refuse("=")
        return name, self.setting_value()

    def setting_value(self) -> Value:
        token = self._curr
        if self._match_pair(TokenType.L_PAREN, TokenType.R_PAREN):
            return ()
        if self._match(TokenType.L_PAREN, advance=False):
            return tuple(str(value) for value in self.bracketed(self.setting_value))
        if token.token_type is TokenType.STRING:
            self._advance()
            return token.text
        if token.token_type is TokenType.NUMBER:
            self._advance()
            try:
                return int(token.text) if token.text.isdecimal() else float(token.text)
            except ValueError:
                raise InvalidRequest(f"{token.text[:60]} is no number, or has too many digits") from None
        for word, value in (("TRUE", True), ("FALSE", False), ("NULL", None)):
            if self._match_text_seq(word):
                return value
        return self.name()

    def alter(self) -> Defining:
        self.expect("TABLE")
        name = self.full_name()
        if self._match_text_seq("ADD"):
            self._match_text_seq("COLUMN")
            if_not_exists = self._match_text_seq("IF", "NOT", "EXISTS")
            column, is_key = self.column(self.dotted())
            if is_key or not column.nullable:
                raise InvalidRequest(f"column {column.name!r} is null in rows that are there: add it without NOT NULL")
            return AddColumn(name, column, if_not_exists)
        if self._match_text_seq("SET"):
            return SetOptions(name, self.bracketed(self.setting))
        if self._match_text_seq("RENAME"):
            return self.rename(name)
        if self._match_text_seq("DROP"):
            self._match_text_seq("COLUMN")
            if_exists = self._match_text_seq("IF", "EXISTS")
            return AlterColumn(name, "drop", self.dotted(), if_exists=if_exists)
        if self._match_text_seq("ALTER"):
            self._match_text_seq("COLUMN")
            return self.alter_column(name, self.dotted())
        for word in ("MODIFY", "CHANGE"):
            if self._match_text_seq(word):
                raise InvalidRequest(f"ALTER TABLE … {word} is not known here: write ALTER COLUMN … TYPE …")
        self.refuse("ADD, RENAME, DROP or ALTER COLUMN, or SET (option = value)")

    def rename(self, name: str) -> AlterColumn:
        if self._match_text_seq("TO"):
            raise InvalidRequest("a table keeps its name: write its rows into a new one (CREATE TABLE … AS)")
        self._match_text_seq("COLUMN")
        column = self.dotted()
        self.expect("TO")
        return AlterColumn(name, "rename", column, self.name())

    def dotted(self) -> str:
        """A column, or a field inside of one by its path."""
        parts = [self.name()]
        while self._match(TokenType.DOT):
            parts.append(self.name())
        return ".".join(parts)

    def alter_column(self, name: str, column: str) -> AlterColumn:
        if self._match_text_seq("DROP", "NOT", "NULL"):
            return AlterColumn(name, "relax", column)
        if self._match_text_seq("DROP", "DEFAULT"):
            return AlterColumn(name, "default", column)
        if self._match_text_seq("SET", "DEFAULT"):
            return AlterColumn(name, "default", column, default=self.constant(column))
        if self._match_text_seq("SET", "NOT", "NULL"):
            return AlterColumn(name, "require", column)
        if self._match_text_seq("SET", "DATA", "TYPE") or self._match_text_seq("TYPE"):
            return AlterColumn(name, "widen", column, self.type_text())
        if self._match_text_seq("FIRST"):
            return AlterColumn(name, "move", column)
        if self._match_text_seq("AFTER"):
            return AlterColumn(name, "move", column, self.name())
        self.refuse("TYPE, SET NOT NULL, DROP NOT NULL, SET DEFAULT, DROP DEFAULT, FIRST or AFTER")
