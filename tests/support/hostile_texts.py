"""SQL that has taken engines down, or would: what was published, every rule of the grammar within itself, and bombs.

Each text is of one kind: `deep` ones nest or chain a rule of the grammar, `costly` ones ask for more time, memory or
disk than there is, `odd` ones stand at an edge where engines had faults. None reads more than shop.orders.
"""

from __future__ import annotations

from collections.abc import Iterator

DEEP, LONG, VERY_LONG = 300, 5_000, 20_000


def nested(around: str, times: int, inner: str = "1") -> str:
    before, after = around.split("…")
    return before * times + inner + after * times


# A rule of the grammar, with … where it may stand within itself. `check_text` counts round and square brackets; all
# others reach the parser.
WITHIN_ITSELF = {
    "interval": "interval …",
    "minus": "- …",
    "plus": "+ …",
    "not": "not …",
    "tilde": "~ …",
    "case when": "case when … then 1 end",
    "case then": "case when true then … end",
    "case else": "case when true then 1 else … end",
    "case of": "case … when 1 then 1 end",
    "cast": "… :: int",
    "is null": "… is null",
    "is true": "… is true",
    "is distinct": "… is distinct from 1",
    "at time zone": "… at time zone 'UTC'",
    "collate": '… collate "C"',
    "plus after": "… + 1",
    "concatenation": "… || 'x'",
    "and": "… and true",
    "or": "… or true",
    "like": "… like 'x'",
    "similar": "… similar to 'x'",
    "between": "1 between … and 2",
    "any": "1 = any …",
    "typed text": "date …",
    "field": "….a",
    "exponent": "… ^ 2",
    "shift": "… << 1",
    "arrow": "… -> 'x'",
    "struct": "{'a': …}",
    "lambda": "x -> …",
    "over": "… over w",
    "filter": "… filter where true",
}
CHAINS = {
    "unions": (" union all ", "select 1"),
    "intersections": (" intersect ", "select 1"),
    "exceptions": (" except ", "select 1"),
    "values": (", ", "(1)"),
}
LISTS = {
    "columns": "select … from shop.orders",
    "groups": "select 1 from shop.orders group by …",
    "orders": "select 1 from shop.orders order by …",
    "arguments": "select greatest(…)",
    "members": "select 1 where 1 in (…)",
    "elements": "select [… ]",
    "partitions": "select count(*) over (partition by …) from shop.orders",
    "sets": "select 1 from shop.orders group by grouping sets (…)",
}
FROM_LISTS = {
    "tables": ("select count(*) from ", ", ", "shop.orders t{n}"),
    "joins": ("select count(*) from shop.orders a ", " ", "join shop.orders t{n} on t{n}.side = a.side"),
    "laterals": ("select count(*) from shop.orders a ", " ", "cross join lateral (select a.id) t{n}"),
    "ctes": ("with ", ", ", "t{n} as (select 1)"),
}
PUBLISHED = {
    "open brackets": "(" * 1_024,
    "deep where": "select count(*) from shop.orders where " + " or ".join(f"id = {n}" for n in range(VERY_LONG)),
    "deep sum": "select " + "1+" * 2_000 + "1",
    "deeper sum": "select " + "1+" * VERY_LONG + "1",
    "chain of names": "with t0 as (select 1 as x), "
    + ", ".join(f"t{n} as (select x from t{n - 1})" for n in range(1, 4_000))
    + " select x from t3999",
    "union of other widths": "select id from shop.orders union select id, id from shop.orders",
    "count of distinct nothing": "select count(distinct) from shop.orders",
    "decimal beyond its digits": "select ('0.54321543215432154321543215432154321'::decimal(35,35) + 10000)::varchar",
    "timestamp of text": "select count(cast(cast(name || '' as timestamp) as bigint)) from shop.orders",
    "top of many": "select * from shop.orders order by name limit 50000",
    "nested joins": "select * from " + nested("(…)", 45, "shop.orders a cross join shop.orders b"),
    "in of brackets": "select double xor dr in " + "(" * 400,
    "brackets around tables": "select * from " + "(" * 1_000 + "shop.orders" + ")" * 1_000,
}
ODD = {
    "smallest number by minus one": "select cast(-9223372036854775808 as bigint) / cast(-1 as bigint)",
    "remainder of it": "select cast(-9223372036854775808 as bigint) % cast(-1 as bigint)",
    "absolute of it": "select abs(cast(-9223372036854775808 as bigint))",
    "date beyond": "select date '9999-12-31' + interval '999999999 years'",
    "date before": "select date '0001-01-01' - interval '999999999 months'",
    "truncated to nothing": "select date_trunc('', now())",
    "bin of nothing": "select date_bin(interval '0 seconds', now())",
    "bin of months": "select date_bin(interval '1 month', now(), timestamp '1970-01-01')",
    "substring from nowhere": "select substr('abc', -9223372036854775808, 9223372036854775807)",
    "left of everything": "select left('abc', -9223372036854775808)",
    "right of everything": "select right('abc', -9223372036854775808)",
    "split at the end": "select split_part('a.b', '.', -9223372036854775808)",
    "character beyond": "select chr(2147483647)",
    "hexadecimal": "select decode('zz', 'hex')",
    "slices": "select array_slice([1, 2, 3], -9223372036854775808, 9223372036854775807)",
    "element nowhere": "select array_element([1], -9223372036854775808)",
    "range backwards": "select range(9223372036854775807, -9223372036854775808, -1)",
    "range of nothing": "select range(1, 10, 0)",
    "series without an end": "select generate_series(1, 9223372036854775807)",
    "frame beyond": "select sum(id) over (order by id rows between 9223372036854775807 preceding and current row) "
    "from shop.orders",
    "tile of nothing": "select ntile(0) over (order by id) from shop.orders",
    "lag beyond": "select lag(id, -9223372036854775808) over (order by id) from shop.orders",
    "nth of nothing": "select nth_value(id, 0) over (order by id) from shop.orders",
    "percentile beyond": "select approx_percentile_cont(id, 2.0) from shop.orders",
    "limit beyond": "select id from shop.orders limit 9223372036854775807 offset 9223372036854775807",
    "factorial": "select factorial(1000)",
    "power": "select power(cast(99999999999999999999999999999999999999 as decimal(38, 0)), 38)",
    "logarithm": "select log(0, 0), ln(-1), sqrt(-1)",
    "wide decimal": "select cast('1e400' as decimal(76, 75))",
    "overlay nowhere": "select overlay('abc' placing 'x' from -9223372036854775808 for 9223372036854775807)",
    "position": "select strpos('', ''), position('' in '')",
    "zero byte": "select 'a\x00b' || chr(0)",
    "half a character": "select substr('\U0001f600', 1, 1) || reverse('\U0001f600')",
    "unknown type": "select arrow_cast(1, 'Dictionary(Int8, Dictionary(Int8, Utf8))')",
    "types within types": "select arrow_cast(null, '" + nested("List(…)", 200, "Int8") + "')",
    "map of nothing": "select map([], [])",
    "map of pairs": "select map(['a', 'a'], [1, 2])",
    "struct of nothing": "select struct(), named_struct()",
    "unnest of nothing": "select unnest([]), unnest(null)",
    "pattern backwards": "select regexp_replace('aaa', '(a*)*$', '\\1\\1\\1')",
    "unfinished pattern": "select regexp_like('a', '((((')",
    "correlated twice": "select (select (select a.id from shop.orders b where b.id = a.id limit 1)) from shop.orders a",
    "aggregate in a window": "select sum(sum(id)) over (order by sum(id)) from shop.orders group by side",
    "grouping of nothing": "select grouping(id) from shop.orders",
    "names of columns": "select * exclude (id, side, name) from shop.orders",
    "join of itself by nothing": "select * from shop.orders a natural join shop.orders b using (id)",
}
# They take their process down, or go on until they are stopped.
COSTLY = {
    "pattern of every row": r"select count(*) from range(1000000) where regexp_like('a', concat('\pL{240}', value))",
    "pattern of many sizes": "select count(*) from range(1000000) where "
    r"regexp_like('aaaa', concat('(\w{100}){', value % 20 + 1, '}'))",
    "pattern counted": r"select sum(regexp_count('aaaa', concat('(\pL{20}){', value % 40 + 1, '}'))) from "
    "range(1000000)",
    "pattern of a pattern": r"select regexp_replace(repeat('a', 100000), '(a{1,900}){1,900}', 'b') from shop.orders",
    "powers": "select sum(power(cast(value as decimal(38,10)), 5)) from generate_series(1,1000000000)",
    "patterns of like": "select count(*) from generate_series(1,100000000) where cast(value as varchar) like "
    "concat('%', value, '%_%_%_%')",
    "sort on disk": "select max(n) from (select row_number() over (order by value * 7919 % 1000003) n from "
    "range(2000000000))",
    "groups on disk": "select count(*) from (select value * 7919 % 1000000007 k, count(*) from "
    "range(2000000000) group by 1)",
    "distinct on disk": "select count(distinct value * 7919) from range(2000000000)",
    "window of all rows": "select sum(id) over (order by id range between 1000000 preceding and 1000000 following) "
    "from shop.orders a cross join range(1000)",
    "lists of lists": "select array_agg(value) over (order by value) from range(1000000)",
    "texts of texts": "select string_agg(repeat('x', 10000), '') over (order by value) from range(1000000)",
    "flattened": "select flatten([range(0, 100000000), range(0, 100000000)])",
    "product": "select count(*) from range(10000000) a, range(10000000) b, range(10000000) c",
    "recursion that doubles": "with recursive r(n, t) as (select 1, 'x' union all select n + 1, t || t from r "
    "where n < 60) select length(t) from r",
    "recursion of rows": "with recursive r(n) as (select 1 union all select a.n from r a, range(1000)) select "
    "count(*) from r",
    "hashes": "select sha512(repeat('x', 1000000000))",
    "encodings": "select encode(encode(repeat('x', 500000000), 'hex'), 'base64')",
    "replacements": "select replace(repeat('a', 1000000), 'a', repeat('b', 1000000))",
    "translations": "select translate(repeat('a', 500000000), 'a', 'b')",
    "reversals": "select reverse(repeat('a', 1500000000))",
    "texts of rows": "select concat_ws(repeat('x', 100000), name, name, name) from shop.orders",
    "padded rows": "select lpad(name, 10000000) from shop.orders",
    "lists of rows": "select array_repeat(name, 1000000) from shop.orders",
    "distances": "select levenshtein(repeat(name, 1000), repeat(name, 1000)) from shop.orders",
    "windows of medians": "select median(id) over (order by id) from shop.orders",
    "sorts of lists": "select array_sort(range(0, 1000000000))",
    "unions of lists": "select array_union(range(0, 100000000), range(0, 100000000))",
    "pairs": "select array_distinct(array_concat(range(0, 300000000), range(0, 300000000)))",
    "formats": "select to_char(now(), repeat('%Y', 100000000))",
    "cubes": "select 1 from shop.orders group by cube (" + ", ".join(f"id + {n}" for n in range(25)) + ")",
    "sleepy subquery": "select count(*) from shop.orders a where a.id in (select a.id + b.value from "
    "range(100000000) b)",
    "not in": "select count(*) from shop.orders where id not in (select value from range(1000000000))",
    "large answer": "select repeat('x', 100000) from range(1000000)",
    "median": "select median(value * 7919 % 1000003) from range(2000000000)",
}


def deep() -> Iterator[tuple[str, str]]:
    for name, around in WITHIN_ITSELF.items():
        for times in (DEEP, LONG):
            yield f"{name} within itself, {times} times", "select " + nested(around, times)
    for name, (between, part) in CHAINS.items():
        for times in (DEEP, LONG):
            text = between.join([part] * times)
            yield f"{times} {name} in a row", f"values {text}" if name == "values" else text
    for name, around in LISTS.items():
        part = "(1)" if name == "sets" else "1"
        yield f"{LONG} {name}", around.replace("…", ", ".join([part] * LONG))
        yield f"199 KB of {name}", around.replace("…", ", ".join([part] * (199_000 // (len(part) + 2))))
    for name, (start, between, part) in FROM_LISTS.items():
        end = " select 1" if name == "ctes" else ""
        for times in (60, 1_000):
            yield f"{times} {name}", start + between.join(part.format(n=n) for n in range(times)) + end
    for rule in ("select (…)", "select * from (…) t", "select 1 where exists (…)", "select 1 in (…)"):
        yield f"{rule} within itself", nested(rule, 45, "select 1")
    for rule in ("abs(…)", "[…]", "coalesce(…, 1)", "struct(…)", "cast(… as bigint)", "extract(year from …)"):
        yield f"{rule} within itself", "select " + nested(rule, 45)


def all_texts() -> dict[str, str]:
    """By name, which begins with the kind."""
    kinds = {"published": PUBLISHED, "odd": ODD, "costly": COSTLY, "deep": dict(deep())}
    return {f"{kind}: {name}": text for kind, texts in kinds.items() for name, text in texts.items()}
