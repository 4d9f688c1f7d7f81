"""What is refused, what is planned in this process, and when two texts are one query."""

from __future__ import annotations

import pyarrow as pa
import pytest
from datafusion import SessionContext
from hypothesis import given
from hypothesis import strategies as st

from lithify.core.sql_text import words_of
from lithify.errors import InvalidRequest
from lithify.sql.cheap_to_plan import is_cheap_to_plan
from lithify.sql.guard import (
    LENGTH_MAX,
    check_condition,
    check_plan,
    check_text,
    is_repeatable,
    normalised,
)

CHAIN = 1_000


class TestRefused:
    @pytest.mark.parametrize(
        "query",
        [
            "insert into shop.orders values (1)",
            "DELETE FROM shop.orders",
            "create table t as select 1",
            "create external table t stored as csv location '/etc/passwd'",
            "drop table shop.orders",
            "set datafusion.execution.batch_size = 1",
            "show tables",
            "describe shop.orders",
            "explain select 1",
            "explain analyze select 1",
            "copy (select 1) to '/tmp/x.csv'",
            "prepare p as select 1",
            "/* select */ truncate shop.orders",
            "-- select\nvacuum",
            "(drop table shop.orders)",
        ],
    )
    def test_anything_but_select(self, query: str) -> None:
        with pytest.raises(InvalidRequest, match="the query is not accepted: only SELECT is, and this begins with"):
            check_text(query)

    @pytest.mark.parametrize("how", ["(10 percent)", "bernoulli (10)", "SYSTEM (10)", "row (5)", "-- some\n(5 rows)"])
    def test_a_sample_which_the_engine_would_not_take(self, how: str) -> None:
        with pytest.raises(InvalidRequest, match="TABLESAMPLE is not accepted"):
            check_text(f"select count(*) from a.t TableSample {how}")

    @pytest.mark.parametrize(
        "query",
        ["select tablesample from a.t where tablesample in (1)", "select 'tablesample (10)'", 'select "tablesample"'],
    )
    def test_a_column_of_that_name_is_no_sample(self, query: str) -> None:
        check_text(query)

    @pytest.mark.parametrize("query", ["", "  \n", ";", "-- nothing", "/* nothing */"])
    def test_nothing(self, query: str) -> None:
        with pytest.raises(InvalidRequest, match="the query is empty"):
            check_text(query)

    @pytest.mark.parametrize("query", ["select 1; select 2", "select ';'; drop table t", "select 1;; values (2)"])
    def test_a_second_statement(self, query: str) -> None:
        with pytest.raises(InvalidRequest, match="one statement at a time"):
            check_text(query)

    @pytest.mark.parametrize(
        "query", ["select 1;", "select ';'", "select 1 -- ; select 2", "with a as (select 1) values (1);;"]
    )
    def test_a_semicolon_that_ends_or_is_text_is_fine(self, query: str) -> None:
        check_text(query)

    def test_a_text_beyond_the_limit(self) -> None:
        check_text("select '" + "x" * (LENGTH_MAX - 9) + "'")
        with pytest.raises(InvalidRequest, match="longer than 256 KiB"):
            check_text("select '" + "x" * LENGTH_MAX + "'")

    @pytest.mark.parametrize("around", ["(…)", "[…]", "abs(…)", "(select …)"])
    def test_a_text_that_is_nested_too_deeply(self, around: str) -> None:
        before, after = around.split("…")
        check_text("select " + before * 50 + "1" + after * 50)
        with pytest.raises(InvalidRequest, match="nested more than 50 levels deep"):
            check_text("select " + before * 51 + "1" + after * 51)

    @pytest.mark.parametrize("name", ["input_file_name", "INPUT_FILE_NAME", '"input_file_name"'])
    def test_functions_that_tell_where_files_are(self, name: str) -> None:
        with pytest.raises(InvalidRequest, match="there is no function"):
            check_text(f"select {name}() from shop.orders")

    @pytest.mark.parametrize("query", ["explain select 1", "describe t", "copy t to '/tmp/lithify-never.csv'"])
    def test_a_plan_that_does_not_only_read(self, query: str) -> None:
        plan = _context().sql(query).logical_plan()
        with pytest.raises(InvalidRequest, match="the query is not accepted: only SELECT is, and this is"):
            check_plan(plan)

    @pytest.mark.parametrize(
        "query",
        [
            "select a, sum(a) over (order by a) from t where a > 1 order by 1 limit 1 offset 1",
            "select count(*) from t group by a having count(*) > 1 union select 1 intersect select 2 except select 3",
            "select * from t x left join t y on x.a = y.a cross join t z where exists (select 1 from t where a = x.a)",
            "select distinct on (a) a from t",
            "values (1), (2)",
            "select unnest([1, 2]), (select max(a) from t)",
            "with recursive r(n) as (select 1 union all select n + 1 from r where n < 3) select * from r",
            "select * from t full join t u using (a) where t.a not in (select a from t)",
        ],
    )
    def test_a_plan_that_only_reads_is_fine(self, query: str) -> None:
        check_plan(_context().sql(query).logical_plan())

    @pytest.mark.parametrize(
        "query",
        [
            "select * from (values (1, (select max(a) from t))) as v(x, y) where y > 1",
            "with v as (values (2), ((select max(a) from t) + 1)) select * from v",
        ],
    )
    def test_subqueries_in_values_are_told_to_be_selects(self, query: str) -> None:
        plan = _context().sql(query).logical_plan()
        with pytest.raises(InvalidRequest, match=r"a subquery stands within VALUES, .* UNION ALL"):
            check_plan(plan)


def _context() -> SessionContext:
    context = SessionContext()
    context.register_record_batches("t", [[pa.RecordBatch.from_pydict({"a": [1, 2]})]])
    return context


class TestTame:
    @pytest.mark.parametrize(
        "query",
        [
            "select * from shop.orders where id = 5",
            "select name || ' ' || name, replace(name, 'a', 'b') from shop.orders",
            "select sum(x) over (order by y range between 3 preceding and current row) from t",
            "select * from range(10)",
            "select g.value from t join generate_series(1, 10) g on g.value = t.a",
            "select replace(replace(name, 'a', 'b'), 'c', 'd'), encode(name, 'hex') from t",
            "select arrow_cast(a, 'Timestamp(Second, None)') from t",
            "with a as (select 1 x), b as (select x from a) select * from b join a on a.x = b.x",
            f"select * from t where id in ({', '.join(map(str, range(20_000)))})",
            f"select {', '.join(f'c{n}' for n in range(500))} from t",
            "select 'repeat(x, 1000000000)' from t",
            "select space, range, cube from t",
        ],
    )
    def test_planned_here(self, query: str) -> None:
        assert is_cheap_to_plan(words_of(query))

    @pytest.mark.parametrize(
        "query",
        [
            "select repeat('x', 10)",
            "select \"repeat\"('x', 10)",
            "select/**/RePeAt\n('x', 10)",
            "select lpad(name, 1000000000) from t",
            "select a, range(0, 1000000000) from t",
            "select levenshtein(name, name) from t",
            "select count(*) from t group by cube (a, b, c)",
            "select array_agg(name) over (order by a) from t",
            'select "string_agg"(name, 1) over w from t window w as (order by a)',
            "select median(a) over (order by a rows 100 preceding) from t",
            "select u.s || t.name from t cross join (select string_agg(name, ',') s from t) u",
            "select t.name in (select array_agg(name) from t) from t",
            "with recursive r(n) as (select 1 union all select n + 1 from r) select * from r",
            "select $$ text $$",
            "select E'\\' , repeat(1, 2) , '",
            "select " + "+".join(["1"] * CHAIN),
            " union all ".join(["select 1"] * CHAIN),
            "select * from t where " + " or ".join(f"a = {n}" for n in range(CHAIN)),
            "select * from " + ", ".join(f"t t{n}" for n in range(CHAIN)),
            "select * from (select 1 from t where true) z, " + ", ".join(f"t t{n}" for n in range(CHAIN)),
            "select 1 from t " + " ".join(f"join t t{n} on true" for n in range(CHAIN)),
            "with c0 as (select 1 x), "
            + ", ".join(f"c{n} as (select a.x from c{n - 1} a, c{n - 1} b)" for n in range(1, 20))
            + " select * from c19",
            "select concat("
            + ",".join(["x"] * 50)
            + ") from (select concat(x, x) x from (select 1 x from (select 1)))",
            "select x || x from " + "(select x || x x from " * 20 + "t" + ")" * 20,
            "select replace(name, 'a', '" + "b" * 2_000 + "') from t",
            "select " + "replace(" * 10 + "name" + ", 'a', 'aa')" * 10 + " from t",
            "select " + "encode(" * 30 + "name" + ", 'hex')" * 30 + " from t",
            "select '" + "x" * 2_000 + "' from t",
            "select " + ", ".join(["'" + "x" * 900 + "'"] * 100) + " from t",
            "select arrow_cast(null, 'FixedSizeList(1000000000, Int8)')",
        ],
        ids=lambda query: query[:40],
    )
    def test_planned_elsewhere(self, query: str) -> None:
        assert not is_cheap_to_plan(words_of(query))


class TestRepeatable:
    @pytest.mark.parametrize(
        "call", ["random()", "RAND()", "uuid()", "now()", "current_date", "current_timestamp", "today()"]
    )
    def test_chance_and_the_clock_are_not(self, call: str) -> None:
        assert not is_repeatable("", f"select {call}")

    def test_the_plan_is_asked_too(self) -> None:
        assert not is_repeatable(
            _context().sql("select random()").logical_plan().display_indent(), "select a function of mine"
        )

    def test_anything_else_is(self) -> None:
        assert is_repeatable(_context().sql("select a from t").logical_plan().display_indent(), "select a from t")


WORDS = st.sampled_from(["select", "SELECT", "Select", "a", "A", "b", "from", "x1", "é", "É"])
TEXTS = st.text("aA -/*'\";\n", max_size=6).map(lambda text: "'" + text.replace("'", "''") + "'")
QUOTED = st.text("aA -/*';", min_size=1, max_size=5).map(lambda text: f'"{text}"')
OTHERS = st.sampled_from([",", "+", "=", "<", "(", ")", "1", "2.5", "||", "."])
TOKENS = st.lists(st.one_of(WORDS, TEXTS, QUOTED, OTHERS), max_size=8)
SPACE = st.sampled_from([" ", "\n", "\t ", " /* c */ ", " -- c\n", " /* it's */", "\r\n"])


def meaning(tokens: list[str]) -> list[str]:
    """What the engine sees: words without regard to case, and everything else as it is."""
    return [token if token[0] in "'\"" else token.lower() if token.isascii() else token for token in tokens]


@st.composite
def written(draw: st.DrawFn, tokens: list[str]) -> str:
    """A way to write them: with any white space and comments between."""
    return draw(SPACE).join(["", *tokens, draw(st.sampled_from(["", ";", " ;", "; -- end"]))])


class TestNormalised:
    @given(st.data())
    def test_never_the_same_for_different_queries(self, data: st.DataObject) -> None:
        one, other = data.draw(TOKENS), data.draw(TOKENS)
        first, second = data.draw(written(one)), data.draw(written(other))
        if normalised(first) == normalised(second):
            assert meaning(one) == meaning(other)

    @given(st.data())
    def test_the_same_however_it_is_written(self, data: st.DataObject) -> None:
        tokens = [part for token in data.draw(TOKENS) for part in (token, ",")]
        loud = [token if token[0] in "'\"" or not token.isascii() else token.upper() for token in tokens]
        assert normalised(data.draw(written(tokens))) == normalised(data.draw(written(loud)))

    @given(st.data())
    def test_once_is_enough(self, data: st.DataObject) -> None:
        query = normalised(data.draw(written(data.draw(TOKENS))))
        assert normalised(query) == query

    @pytest.mark.parametrize(
        "query",
        [
            "SELECT E'\\' A -- '",
            "SELECT $$ A  B $$",
            "SELECT `A  B`",
            "SELECT 'a'  'B'",
            "SELECT 1 /* /* */ A */",
            "SELECT 'never  Ends",
            "SELECT struct(1 AS A)",
            "SELECT -- a\rB",
        ],
    )
    def test_what_cannot_be_told_for_sure_is_left_alone(self, query: str) -> None:
        assert normalised(query) == query

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("select 'a  b'", "select 'a b'"),
            ("select 'A'", "select 'a'"),
            ('select "A"', 'select "a"'),
            ("select '-- a'", "select ' -- a'"),
            ("select 'it''s  A'", "select 'it''s A'"),
            ("select 1 --2", "select 1 - -2"),
            ("select a b", "select ab"),
            ("select 1 ;", "select ';'"),
        ],
    )
    def test_what_is_quoted_counts_as_it_is(self, one: str, other: str) -> None:
        assert normalised(one) != normalised(other)


@pytest.mark.parametrize("where", ["1=1) or (1=1", "(id = 1", "id = 1)", ")("])
def test_a_condition_stays_within_its_brackets(where: str) -> None:
    with pytest.raises(InvalidRequest, match="brackets do not match"):
        check_condition(where)


@pytest.mark.parametrize("where", ["name = ')'", "(id = 1) or (id = 2)", "id in (1, 2) -- )"])
def test_brackets_in_texts_and_comments_do_not_count(where: str) -> None:
    check_condition(where)
