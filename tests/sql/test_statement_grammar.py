"""What a statement says is told by its words, in its own words; what is none is refused, whatever it is."""

from __future__ import annotations

import pickle
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lithify.core.sql_text import words_of
from lithify.errors import InvalidRequest
from lithify.sql.statements import grammar
from lithify.sql.statements.first_word import is_statement
from lithify.sql.statements.grammar import parse
from lithify.sql.statements.long_lists import Shortened, shortened
from lithify.sql.statements.model import Assignment, Delete, Insert, Merge, Target, Update
from support.effort import examples


def test_an_update_is_taken_apart_in_its_own_words() -> None:
    found = parse(
        """UPDATE lake.shop.Orders AS o SET "Price" = o.price * 1.10, ok = a AND b /* both */ OR c,
                     n = (SELECT max(x) FROM shop.z) FROM shop.s s JOIN shop.r r ON r.id = s.id, shop.q
                     WHERE o.id = s.id -- the end
                  """.replace("Orders", "orders")
    )

    assert found == Update(
        Target("shop.orders", "o"),
        (
            Assignment("Price", "o.price * 1.10"),
            Assignment("ok", "a AND b /* both */ OR c"),
            Assignment("n", "(SELECT max(x) FROM shop.z)"),
        ),
        "shop.s s JOIN shop.r r ON r.id = s.id, shop.q",
        "o.id = s.id",
    )


def test_a_query_stands_where_values_may() -> None:
    found = parse("insert into shop.t (a, b) select 1, 2 union all (select x, y from shop.s order by x limit 3)")

    assert isinstance(found, Insert)
    assert (found.columns, found.source) == (
        ("a", "b"),
        "select 1, 2 union all (select x, y from shop.s order by x limit 3)",
    )


def test_a_comment_may_stand_wherever_a_blank_may() -> None:
    query = "select id, count(*) from shop.s group /* by */ by id order -- 'by'\n by id"

    found = parse(f"insert /* x */ into shop.t {query} /* now */ on -- y\n conflict do nothing")

    assert isinstance(found, Insert)
    assert found.source == query
    assert found.on_conflict is not None


def test_names_are_folded_as_the_engine_folds_them() -> None:
    found = parse('delete from shop.t as "T" where "T".x = 1')

    assert found == Delete(Target("shop.t", "T"), None, '"T".x = 1')


def test_columns_that_must_be_equal_are_seen_where_the_words_tell() -> None:
    found = parse(
        "merge into a.t using a.s as s on (t.id = s.k and s.b = t.b) and t.c = 3 and t.d > s.d or false "
        "when matched then delete"
    )
    tame = parse(
        "merge into a.t using a.s as s on (t.id = s.k and s.b = t.b) and t.c = 3 and t.d > s.d when matched then delete"
    )

    assert isinstance(found, Merge)
    assert isinstance(tame, Merge)
    assert (found.equal, tame.equal) == ((), (("id", "k"), ("b", "b")))


def test_only_on_conflict_knows_excluded_rows() -> None:
    inserted = parse('insert into a.t values (1) on conflict (id) do update set n = excluded.n + excluded."M"')
    merged = parse(
        "merge into a.t using a.s as excluded on t.id = excluded.id when matched then update set n = excluded.n"
    )

    assert isinstance(inserted, Insert)
    assert inserted.on_conflict is not None
    assert inserted.on_conflict.assignments == (Assignment("n", 'excluded."_lithify_n" + excluded."_lithify_M"'),)
    assert isinstance(merged, Merge)
    assert merged.whens[0].assignments == (Assignment("n", "excluded.n"),)


def test_statements_travel_between_processes() -> None:
    found = parse("merge into a.t using a.s s on t.id = s.id when not matched then insert (id) values (s.id)")

    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("insert into a.t values (1); drop table a.t", "one statement at a time"),
        ("update a.t set n = 1; update a.t set n = 2;", "one statement at a time"),
        ("update a.t set n = 1 where x = 1) or (1 = 1", "the end of the statement"),
        ("update a.t set n = (select 1 from a.s", "not accepted"),
        ("update a.t set n = 'open", "not accepted"),
        ("update a.t set n = 1 /* open", "not accepted"),
        ("update a.t set n = E'\\''", "not accepted"),
        ("update a.t set n = $$x$$", "not accepted"),
        ("update `a.t` set n = 1", "not accepted"),
        ("update a.t set n = \\", "not accepted"),
        ("update a.t set", "a name should stand where the end is"),
        ("update a.t set n", "= should stand"),
        ("update a.t set n = ", "a value or a query"),
        ("update a.t set n = 1 limit 3", "the end of the statement should stand where 'limit'"),
        ("insert into a.t", "a value or a query"),
        ("insert a.t values (1)", "INTO should stand"),
        ("insert into a.t default values", "have their defaults"),
        ("insert into a.t values (1) on conflict do", "UPDATE should stand"),
        ("delete a.t", "FROM should stand"),
        ("merge into a.t using (select 1) on true when matched then delete", "needs a name"),
        ("merge into a.t using a.s on true", "WHEN should stand"),
        ("merge into a.t using a.s on true when matched by source then delete", "NOT MATCHED BY SOURCE"),
        ("merge into a.t using a.s on true when matched then insert values (1)", "UPDATE should stand"),
        ("merge into a.t using a.s on true when not matched then delete", "INSERT should stand"),
        ('update "a.b.c".t set n = 1', "no table name"),
        ("update a.t set n = 1 returning n", "RETURNING"),
        ("select 1", "should stand"),
        ("", "should stand where the end is"),
        ("update \x00 set n = 1", "not accepted"),
        ("update a.t set n = " + "(" * 60 + "1" + ")" * 60, "levels deep"),
        ("update a.t set n = " + "not " * 100_00 + "x", "levels deep"),
        ("update a.t set n = " + "- " * 100_00 + "1", "levels deep"),
        ("update a.t set n = " + "case when " * 3_000 + "x", "levels deep|not accepted"),
        ("update a.t set n = " + "(select " * 49 + "1" + ")" * 49, "levels deep"),
        ("insert into a.t values " + "(1)," * 100_000, "longer than 256 KiB"),
        ("update a.t set n = '" + "x" * 300_000 + "'", "longer than 256 KiB"),
    ],
)
def test_what_is_no_statement_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse(text)


def test_reading_does_not_wait_for_the_parser() -> None:
    texts = ["select 1", "/* insert */ select 1", "-- update\nselect 1", "with x as (select 1) select * from x", ""]
    writing = [
        "INSERT into a.t values (1)",
        "/* a */ -- b\n delete from a.t",
        "with x as (select 1) update a.t set n = 1",
    ]

    assert [is_statement(text) for text in texts] == [False] * 5
    assert [is_statement(text) for text in writing] == [True] * 3
    assert not is_statement("with x as (select 'insert into t') select 'update' from x")


def test_the_depth_that_is_allowed_does_not_overflow_the_stack() -> None:
    """Whatever is refused is refused with an error of ours."""
    for depth in range(1, 60):
        try:
            parse("update a.t set n = " + "(" * depth + "1" + ")" * depth)
        except InvalidRequest:
            assert depth > 20
    assert sys.getrecursionlimit() <= 10_000


def test_a_program_that_only_reads_never_imports_the_parser(folder: Path) -> None:
    code = (
        "import sys; from lithify import Lake\n"
        f"with Lake({str(folder / 'lake')!r}) as lake:\n"
        "    lake.sql('select $1', parameters=[1])\n"
        "    assert 'sqlglot' not in sys.modules and 'lithify.dml' not in sys.modules\n"
        "    try: lake.sql('delete from a.t')\n"
        "    except Exception: pass\n"
        "    assert 'sqlglot' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


NUMBERS = ", ".join(str(n - 5) for n in range(40))
TEXTS = ", ".join(f"'{n}, (it''s) IN (1, 2'" for n in range(40))
ROWS = ",\n".join(f"({n}, -{n}.5, 'a), (b{n}', NULL, date '2026-01-01') /* ), ( */" for n in range(40))


@pytest.mark.parametrize(
    "text",
    [
        f"UPDATE shop.t SET n = coalesce(n, 1) WHERE id IN ({NUMBERS}) AND b",
        f"UPDATE shop.t SET n = 1 WHERE a not in ({TEXTS}) or id in (1, (2), {NUMBERS})",
        f"DELETE FROM shop.t WHERE id IN (SELECT id FROM shop.s WHERE n IN ({NUMBERS})) OR n = 3",
        f"INSERT INTO shop.t (a, b, c, d, e) VALUES {ROWS}",
        f"INSERT INTO shop.t VALUES {ROWS}, (1, 2 + (3), 'x', now(), null)",
        f"INSERT INTO shop.t VALUES {ROWS} "
        f"ON CONFLICT (a) DO UPDATE SET b = excluded.b WHERE excluded.a IN ({NUMBERS})",
        f"MERGE INTO shop.t USING (SELECT * FROM (VALUES {ROWS}) AS v (id, n, a, b, c)) s ON t.id = s.id "
        f"WHEN MATCHED AND t.n IN ({NUMBERS}) THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES ({NUMBERS})",
    ],
)
def test_long_lists_of_constants_are_taken_as_they_stand_and_not_parsed_one_by_one(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, found = shortened(text), parse(text)
    monkeypatch.setattr(grammar, "shortened", lambda whole: Shortened(whole, whole))

    assert found == parse(text)
    assert short.text.count(",") < text.count(",") / 2
    assert [text[short.place(at)] for at in range(len(short.text))] == list(short.text)


@pytest.mark.parametrize("gap", ["", " ", "/* a, (1), */", "-- '\n", "\r\n\t"])
@pytest.mark.parametrize(
    "constant", ["1", "- 2", "+3.", "4.5e-3", "'a'", "''''", "date '2026-01-01'", "timestamp'x'", "null", "True"]
)
def test_every_plain_constant_may_stand_in_a_long_list(constant: str, gap: str) -> None:
    listed = f"{gap},{gap}".join([constant] * 20)
    rows = f"{gap},{gap}".join([f"({gap}{constant}{gap},{gap}1)"] * 20)

    assert shortened(f"a IN ({gap}{listed}{gap}) b").text == f"a IN ({gap}{constant}{gap}) b"
    assert shortened(f"VALUES{gap}{rows}{gap} b").text == f"VALUES{gap}({gap}{constant}{gap},{gap}1){gap} b"


@pytest.mark.parametrize(
    "text",
    [
        "f({0})",
        "VALUES ({0})",
        "insert values ({0})",
        "x IN (a, {0})",
        "x IN ({0}, a)",
        "x IN ({0}, 1 + 1)",
        "x IN ({0}, 1a)",
        "x IN ({0}, x'00')",
        "x IN ({0}, 'a' 'b')",
        "x IN ({0}, -- \r 1\n 2)",
        "x IN ({0}",
        "xin ({0})",
        "'IN ({0})'",
        '"IN ({0})"',
        "-- IN ({0})",
        "/* IN ({0}) */",
    ],
)
def test_other_lists_are_parsed_whole(text: str) -> None:
    whole = text.format(NUMBERS)
    assert shortened(whole) == Shortened(whole, whole)


@pytest.mark.parametrize("text", ["x IN ({0}) $", "x IN ({0}) /* /* */ */", "x IN ({0}) 'a''b' 'c'", "E'x' IN ({0})"])
def test_what_is_odd_is_odd_without_its_lists(text: str) -> None:
    assert words_of(shortened(text.format(NUMBERS)).text).odd


def test_a_long_text_takes_no_longer_than_its_length() -> None:
    for inside in ("''" * 50_000, "1," * 50_000, "in (" * 30_000, "(1), " * 20_000, " " * 100_000, "/*" * 50_000):
        for around in ("x IN ({0}", "x IN ('{0})", "VALUES ({0}", "VALUES (1), {0}"):
            shortened(around.format(inside) + ", 1" * 20)


BROKEN = [
    f"UPDATE shop.t AS u SET n = 1, m = (SELECT 2) FROM (VALUES {ROWS}) AS v (a) WHERE a NOT IN ({TEXTS}) OR id IN (1)",
    f"INSERT INTO shop.t (a, b) VALUES {ROWS} ON CONFLICT (a) DO UPDATE SET b = 1 WHERE excluded.a IN ({NUMBERS})",
    f"MERGE INTO shop.t USING (SELECT * FROM (VALUES {ROWS}) AS v (id, n, a)) s ON t.id = s.id "
    f"WHEN MATCHED AND t.n IN ({NUMBERS}) THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES ({NUMBERS})",
    f"CREATE TABLE a.b AS SELECT * FROM (VALUES {ROWS}) v WHERE x IN ({TEXTS})",
]
PIECES = [",", "(", ")", "'", "in", "values", "--x\n", "/*", "*/", "$", "1", "null", " "]


@pytest.mark.parametrize("seed", range(examples(40, 2_000)))
def test_a_text_with_something_wrong_in_it_is_told_alike_without_its_lists(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    pieces = re.findall(r"'(?:[^']|'')*'|\w+|\s+|.", chance.choice(BROKEN))
    for _ in range(chance.choice([1, 1, 2])):
        at = chance.randrange(len(pieces))
        pieces[at : at + chance.choice([0, 1])] = [chance.choice([*PIECES, chance.choice(pieces)])]
    text = "".join(pieces)

    def told() -> object:
        try:
            return parse(text)
        except InvalidRequest as error:
            return str(error)

    short = told()
    monkeypatch.setattr(grammar, "shortened", lambda whole: Shortened(whole, whole))
    assert short == told(), text
