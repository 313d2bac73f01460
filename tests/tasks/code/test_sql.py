"""Text to SQL: golden scores, results as multisets, and queries that do more than read."""

import json
import re
import sqlite3
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from tasks.sql import SQL, SQLRows
from tasks.sql import rows as sql_rows
from tasks.sql.database import SMALL, QueryLimits, is_ordered, match_rows, run_query
from tasks.sql.drawn import DrawnDatabases, connect
from tasks.sql.generator import draw_schema
from tasks.sql.mutants import mutate_query
from tasks.sql.verify import RightResults, match_bigrams, verify
from tests.tasks.replies import reply


@pytest.fixture
def databases():
    """Two databases of one schema."""
    out = []
    for ages in ((31, 25, 44), (20, 50, 60)):
        connection = sqlite3.connect(":memory:")
        connection.execute("CREATE TABLE emp (id INTEGER, name TEXT, age INTEGER)")
        connection.execute("CREATE TABLE dept (id INTEGER, title TEXT)")
        rows = [(i, name, age) for i, (name, age) in enumerate(zip(("Ada", "Ben", "Ada"), ages))]
        connection.executemany("INSERT INTO emp VALUES (?, ?, ?)", rows)
        connection.commit()
        out.append(connection)
    return out


RIGHT = "SELECT name FROM emp WHERE age > 30"


@pytest.mark.parametrize(
    ("query", "exact", "syntax", "schema"),
    [
        (RIGHT, 1, 1, 1),
        ("select e.name from emp as e where not e.age <= 30;", 1, 1, 1),
        ("SELECT name FROM emp WHERE age > 30 ORDER BY name DESC", 1, 1, 1),
        ("SELECT DISTINCT name FROM emp WHERE age > 30", 0, 1, 1),  # rows are counted
        ("SELECT name, age FROM emp WHERE age > 30", 0, 1, 1),
        ("SELECT name FROM emp WHERE age > 40", 0, 1, 1),
        ("SELECT name FROM emp", 0, 1, 0.5),
        ("SELECT 'Ada' UNION ALL SELECT 'Ada'", 0, 1, 0),  # right on the first database alone
        ("SELECT name, age, d.id FROM emp, dept d", 0, 1, pytest.approx(2 / 3)),
        ("SELECT nome FROM emp", 0, 0, 0),
        ("", 0, 0, 0),
        ("   ", 0, 0, 0),
    ],
)
def test_scores_by_hand(databases, query, exact, syntax, schema):
    scores, _ = verify(query, RIGHT, databases)
    assert (scores["exact"], scores["syntax"], scores["schema"]) == (exact, syntax, schema)


def test_bigrams_by_hand():
    assert match_bigrams("select name from emp where age > 30", "select name from emp where age >= 30") == (
        pytest.approx(5 / 9)
    )
    assert match_bigrams("SELECT name FROM emp;", "select  name\nfrom emp") == 1 and match_bigrams("", "") == 0


def test_order_counts_where_the_right_query_has_one(databases):
    right = "SELECT name FROM emp ORDER BY age"
    assert verify("SELECT name FROM emp ORDER BY age ASC", right, databases)[0]["exact"] == 1
    assert verify("SELECT name FROM emp ORDER BY age DESC", right, databases)[0]["exact"] == 0
    assert is_ordered("select a from b order  by a") and is_ordered("SELECT (1) FROM t ORDER BY (2)")
    assert not is_ordered("SELECT a FROM (SELECT a FROM b ORDER BY a LIMIT 3)")
    assert not is_ordered("SELECT 'order by' FROM b WHERE \"order by\" > 1")


def test_rows_are_multisets_of_typed_values():
    assert match_rows([(1, "a"), (2, None)], [(2.0, None), (1, "a")], ordered=False)
    assert not match_rows([(1,), (2,)], [(2,), (1,)], ordered=True)
    assert not match_rows([("1",)], [(1,)], ordered=False)
    assert not match_rows([(1,), (1,), (2,)], [(1,), (2,), (2,)], ordered=False)
    assert match_rows([(0.1 + 0.2,)], [(0.3,)], ordered=False)
    assert not match_rows([(b"a",)], [("a",)], ordered=False)


ENDLESS = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT {} FROM t"


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("DROP TABLE emp", "forbidden"),
        ("DELETE FROM emp", "forbidden"),
        ("UPDATE emp SET age = 31", "forbidden"),
        ("INSERT INTO emp VALUES (9, 'x', 31)", "forbidden"),
        ("CREATE TABLE x (y)", "forbidden"),
        ("CREATE TEMP VIEW emp2 AS SELECT 1", "forbidden"),
        ("ATTACH '/tmp/x.db' AS x", "forbidden"),
        ("PRAGMA query_only = 0", "forbidden"),
        ("PRAGMA table_info(emp)", "forbidden"),
        ("SELECT * FROM pragma_table_info('emp')", "forbidden"),
        ("SELECT sql FROM sqlite_master", "forbidden"),
        ("BEGIN", "forbidden"),
        ("VACUUM INTO '/tmp/x.db'", "forbidden"),
        ("ANALYZE", "forbidden"),
        ("SELECT load_extension('x')", "forbidden"),
        ("SELECT randomblob(1000000000)", "forbidden"),
        ("SELECT zeroblob(1000000000)", "forbidden"),
        ("SELECT printf('%.*c', 1000000000, 'x')", "forbidden"),
        ("SELECT writefile('/tmp/x', 'y')", "syntax_error"),  # no such function
        (ENDLESS.format("COUNT(*)"), "timed_out"),
        (ENDLESS.format("n"), "too_many_rows"),
        ("SELECT COUNT(*) FROM " + ", ".join(f"emp e{i}" for i in range(14)), "timed_out"),
        ("SELECT replace(replace(hex, 'A', hex), 'B', hex) FROM (SELECT 'A' AS hex)", "ran"),
        (ENDLESS.replace("FROM t)", "FROM t LIMIT 500)").format("group_concat('" + "x" * 1000 + "')"), "too_long"),
        ("SELECT '" + "x" * 20_000 + "'", "too_long"),
        ("SELECT 1; DROP TABLE emp", "syntax_error"),
        ("SELECT name FROM emp\x00", "syntax_error"),
        ("SELECT name FROM emp WHERE name = '\ud800'", "not_text"),
        ("SELECT " + "(" * 4000 + "1" + ")" * 4000, "syntax_error"),
        ("SELECT " + "-" * 999 + "1", "syntax_error"),
        ("ＳＥＬＥＣＴ name FROM emp", "syntax_error"),
        ("SELECT CAST(x'ff' AS TEXT)", "not_text"),
    ],
)
def test_hostile_queries_end_with_a_named_error(databases, query, word):
    start = time.monotonic()
    result = run_query(databases[0], query)
    assert result.word == word, result
    assert time.monotonic() - start < 20
    # nothing has changed
    assert run_query(databases[0], "SELECT COUNT(*), SUM(age) FROM emp").rows == ((3, 100),)


def test_a_right_query_that_does_not_run_is_an_error_of_the_task(databases):
    with pytest.raises(ValueError, match="right query does not run"):
        verify(RIGHT, "SELECT nome FROM emp", databases)


def test_demonstrations_are_right_and_schemas_are_disjoint():
    task = SQL(extract="code")
    for index in range(100):
        episode = reply(task[index], task.demonstrate(index))
        scores = task.score(episode)
        assert set(scores.values()) == {1.0} and episode.info["outcome"] == "right"
    schemas = [{task.on(s).problem(i).schema for i in range(300)} for s in ("train", "held_out")]
    assert not schemas[0] & schemas[1]


def test_a_constant_is_right_on_no_problem():
    task = SQL()
    for index in range(30):
        prompt = task[index]
        databases = DrawnDatabases(prompt.info["schema"], prompt.info["seeds"], prompt.answer)
        first = run_query(next(databases.connect()), prompt.answer).rows
        constants = " UNION ALL ".join("SELECT " + ", ".join(map(repr, row)) for row in first)
        scores = task.score(reply(prompt, constants))
        assert (scores["exact"], scores["syntax"]) == (0, 1)


@pytest.fixture
def folder(tmp_path):
    for name in ("shop", "bank", "zoo"):
        (tmp_path / "db" / name).mkdir(parents=True)
        connection = sqlite3.connect(tmp_path / "db" / name / f"{name}.sqlite")
        connection.execute("CREATE TABLE t (a INTEGER, b TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(1, "x"), (2, "y")])
        connection.commit()
        connection.close()
    rows = [
        {"db_id": "shop", "question": "All a?", "query": "SELECT a FROM t"},
        {"db_id": "bank", "question": "All b?", "SQL": "SELECT b FROM t", "evidence": "b is a letter"},
        {"db_id": "zoo", "question": "How many?", "SQL": "SELECT COUNT(*) FROM t", "evidence": ""},
    ]
    (tmp_path / "dev.json").write_text(json.dumps(rows))
    return tmp_path


def test_rows_of_spider_and_bird(folder):
    train = SQLRows(path=str(folder / "dev.json"), databases=str(folder / "db"), held_out_fraction=0.5)
    parts = [train, train.on("held_out")]
    prompts = [part[i] for part in parts for i in range(len(part))]
    assert sorted(p.answer for p in prompts) == ["SELECT COUNT(*) FROM t", "SELECT a FROM t", "SELECT b FROM t"]
    bank = next(p for p in prompts if p.answer == "SELECT b FROM t")
    assert bank.messages[0]["content"] == "CREATE TABLE t (a INTEGER, b TEXT);\n-- b is a letter\n-- All b?"
    assert train.score(reply(bank, "SELECT b FROM t ORDER BY b"))["exact"] == 1
    assert train.score(reply(bank, "DELETE FROM t"))["exact"] == 0
    for part in parts:
        assert part.score(reply(part[0], part.demonstrate(0)))["exact"] == 1


@pytest.fixture
def large(tmp_path):
    """Build the task of one row over a database with 70,000 rows and a table of 115 columns."""
    (tmp_path / "db" / "x").mkdir(parents=True)
    connection = sqlite3.connect(tmp_path / "db" / "x" / "x.sqlite")
    connection.execute("CREATE TABLE t (a INTEGER, day TEXT)")
    connection.executemany("INSERT INTO t VALUES (?, '2020-01-31')", ((number,) for number in range(70_000)))
    connection.execute(f"CREATE TABLE wide ({', '.join(f'c{number}' for number in range(115))})")
    connection.commit()
    connection.close()

    def build(query, **options):
        row = {"db_id": "x", "question": "?", "query": query}
        (tmp_path / "one.json").write_text(json.dumps([row]))
        task = SQLRows(path=str(tmp_path / "one.json"), databases=str(tmp_path / "db"), **options)
        return task.on(task.split_of(row))

    return build


@pytest.mark.parametrize(
    "query",
    [
        "SELECT COUNT(*) FROM t WHERE a % 2 = 0",
        "SELECT a FROM t",
        "SELECT datetime(day, '+1 day'), time(day), unixepoch(day) FROM t LIMIT 3",
        "SELECT a, LAG(a) OVER (ORDER BY a), NTILE(4) OVER (ORDER BY a) FROM t ORDER BY a LIMIT 5",
        "SELECT * FROM wide",
    ],
)
def test_a_right_query_over_a_large_database_is_scored_and_earned(large, query):
    task = large(query)
    episode = reply(task[0], task.demonstrate(0))
    assert task.score(episode)["exact"] == 1 and episode.info["outcome"] == "right"


def test_the_right_query_has_wider_limits_than_that_of_the_policy(large):
    task = large("SELECT printf('%d', a) FROM t", max_rows=1000)
    for query, word in (
        ("SELECT printf('%d', a) FROM t", "forbidden"),
        ("SELECT CAST(a AS TEXT) FROM t", "too_many_rows"),
        ("SELECT '0'", "wrong"),
    ):
        episode = reply(task[0], query)
        assert task.score(episode)["exact"] == 0 and episode.info["outcome"] == word
    for options in ({"max_operations": 100_000}, {"timeout_s": 0.05}):
        episode = reply(task[0], ENDLESS.format("COUNT(*)"))
        assert replace(task, **options).score(episode)["exact"] == 0 and episode.info["outcome"] == "timed_out"
    for option in ("max_operations", "max_rows", "timeout_s"):
        with pytest.raises(ValueError, match=f"{option} must be > 0, got 0"):
            replace(task, **{option: 0})


def test_limits_of_a_query_are_not_those_of_the_next_one(databases):
    text = "SELECT '" + "x" * 20_000 + "'"
    words = [run_query(databases[0], text, limits).word for limits in (SMALL, QueryLimits(functions=None), SMALL)]
    assert words == ["too_long", "ran", "too_long"]
    assert run_query(databases[0], "SELECT name, id FROM emp", QueryLimits(size=32)).word == "too_long"
    assert run_query(databases[0], "SELECT name, id FROM emp", QueryLimits(size=33)).word == "ran"


def test_rows_without_a_database_or_a_query_are_refused(folder):
    def first(row):
        (folder / "bad.json").write_text(json.dumps([row]))
        task = SQLRows(path=str(folder / "bad.json"), databases=str(folder / "db"))
        return task.on(task.split_of(row))[0]

    with pytest.raises(ValueError, match="there is no database"):
        first({"db_id": "../db/shop/../../x", "question": "?", "query": "SELECT 1"})
    with pytest.raises(ValueError, match="no column 'SQL' or 'query'"):
        first({"db_id": "shop", "question": "All?"})


def test_a_schema_with_its_columns_in_another_order_is_of_the_same_split():
    task = SQL()
    rng = np.random.default_rng(0)
    for _ in range(50):
        schema = draw_schema(rng)
        other = replace(schema, numbers=schema.numbers[::-1], texts=schema.texts[::-1], amounts=schema.amounts[::-1])
        assert task.split_of(other) == task.split_of(schema)
    assert {task.split_of(draw_schema(rng)) for _ in range(50)} == {"train", "held_out"}


TEXTS = "WITH RECURSIVE t(x, n) AS (SELECT {}, 1 UNION ALL SELECT x || x, n + 1 FROM t WHERE n < {})"
LONG = TEXTS.format("'ab'", 16) + " SELECT {} FROM t, t AS u, t AS v, t AS w WHERE length(t.x) > 60000"
SLOW = {
    "a plan without an end": "WITH a0 AS (SELECT 1 AS x)"
    + "".join(f", a{i} AS (SELECT p.x FROM a{i - 1} AS p, a{i - 1} AS q)" for i in range(1, 40))
    + " SELECT COUNT(*) FROM a39",
    "trim in each row": LONG.format("SUM(length(trim(t.x || u.n, u.x || 'b' || v.n || w.n)))"),
    "replace in each row": LONG.format("SUM(length(replace(t.x, 'ba', u.n || v.n || w.n)))"),
    "a search in each row": LONG.format("SUM(instr(t.x, substr(t.x, 1, 30000) || 'c'))"),
    "patterns": LONG.format("COUNT(t.x LIKE '" + "%a" * 40 + "_c')"),
    "globs": LONG.format("COUNT(t.x GLOB '" + "*[a-b]" * 15 + "c')"),
    "sorted texts": LONG.format("group_concat(DISTINCT t.x || u.n || v.n)"),
}


@pytest.mark.parametrize("kind", SLOW)
def test_functions_that_are_slow_in_one_call_end_at_the_limit(kind):
    prompt = SQL()[0]
    start = time.monotonic()
    episode = reply(prompt, SLOW[kind])
    scores = SQL().score(episode)
    assert scores["exact"] == 0 and episode.info["outcome"] in ("timed_out", "too_long"), episode.info
    assert time.monotonic() - start < 20  # a second of processor time


def test_one_call_of_a_function_ends_at_the_limit_of_the_task(large):
    text = "(WITH RECURSIVE t(x, n) AS (SELECT '{}', 1 UNION ALL SELECT x || x, n + 1 FROM t WHERE n < {}) "
    text += "SELECT x FROM t ORDER BY n DESC LIMIT 1)"
    query = f"SELECT length(trim({text.format('a' * 10, 16)}, {text.format('b' * 200, 9)} || 'a'))"
    task = large("SELECT 1", timeout_s=0.5)
    episode = reply(task[0], query)
    start = time.monotonic()
    assert task.score(episode)["exact"] == 0 and episode.info["outcome"] == "timed_out"
    assert time.monotonic() - start < 20


TRIM = "(WITH RECURSIVE t(x, n) AS (SELECT '{}', 1 UNION ALL SELECT x || x, n + 1 FROM t WHERE n < {}) "
TRIM += "SELECT x FROM t ORDER BY n DESC LIMIT 1)"


@pytest.mark.parametrize(
    ("right", "limits", "reason"),
    [
        ("SELECT COUNT(*) FROM t AS a, t AS b", {"operations": 10_000}, r"timed_out interrupted"),
        ("SELECT a FROM t", {"rows": 100}, "too_many_rows"),
        (
            f"SELECT length(trim({TRIM.format('a' * 10, 16)}, {TRIM.format('b' * 200, 9)} || 'a'))",
            {"seconds": 0.2},
            "timed_out",
        ),
        ("SELECT missing FROM t", {}, "syntax_error no such column"),
    ],
)
def test_a_right_query_that_does_not_run_is_an_error_of_its_row(large, monkeypatch, right, limits, reason):
    monkeypatch.setattr(sql_rows, "_RIGHT", replace(sql_rows._RIGHT, **limits))
    task = large(right, max_rows=1)
    for answer in ("SELECT 1", right):
        with pytest.raises(ValueError, match=rf"one\.json:row 1: the right query does not run \({reason}.*; correct"):
            task.score(reply(task[0], answer))


def test_results_of_right_queries_do_not_fill_the_memory(databases):
    results = RightResults(largest=5000)
    for number in range(40):
        result = results.run(databases[0], f"SELECT {number}, name FROM emp", QueryLimits())
        assert result.word == "ran" and len(result.rows) == 3 and results.size <= 5000
    last = results.run(databases[0], "SELECT 39, name FROM emp", QueryLimits())
    assert last is result and last is not results.run(databases[1], "SELECT 39, name FROM emp", QueryLimits())
    text = "SELECT '" + "x" * 6000 + "'"
    assert results.run(databases[0], text, QueryLimits()).word == "ran" and results.size == 0


NEAR_MISSES = {
    "one more": lambda q: re.sub(r"([<>]=?) (\d+)", lambda m: f"{m[1]} {int(m[2]) + 1}", q),
    "one less": lambda q: re.sub(r"([<>]=?) (\d+)", lambda m: f"{m[1]} {int(m[2]) - 1}", q),
    "or equal": lambda q: re.sub(r"([<>])(?!=)", r"\1=", q),
    "not or equal": lambda q: re.sub(r"([<>])=", r"\1", q),
    "distinct": lambda q: q.replace("SELECT ", "SELECT DISTINCT ", 1) if "DISTINCT" not in q else q,
    "not distinct": lambda q: q.replace("DISTINCT ", ""),
    "counts names": lambda q: q.replace("COUNT(*)", "COUNT(DISTINCT name)"),
    "distinct aggregate": lambda q: re.sub(r"(SUM|AVG)\(", r"\1(DISTINCT ", q),
    "outer join": lambda q: q.replace(" JOIN", " LEFT JOIN"),
    "tie": lambda q: q.replace(", id LIMIT", " LIMIT"),
    "tie backwards": lambda q: q.replace(", id LIMIT", ", id DESC LIMIT"),
    "without the first row": lambda q: q.replace("WHERE ", "WHERE id > 1 AND ", 1),
    "without late rows": lambda q: q.replace("WHERE ", "WHERE id < 9 AND ", 1),
    "few rows": lambda q: q if "LIMIT" in q else f"SELECT * FROM ({q}) LIMIT 5",
    "rounded mean": lambda q: re.sub(r"AVG\((\w+)\)", r"ROUND(AVG(\1))", q),
    "or": lambda q: q.replace(" AND ", " OR "),
    "prefix": lambda q: re.sub(r"= '(\w)\w*'", r"LIKE '\1%'", q),
    "limit": lambda q: re.sub(r"LIMIT (\d+)", lambda m: f"LIMIT {int(m[1]) + 1}", q),
}
"""By kind, a change of a right query."""


def test_near_misses_of_a_query_are_wrong():
    task, passed, count = SQL(), [], 0
    for index in range(40):
        problem = task.problem(index)
        right = problem.query
        near = {changed for change in NEAR_MISSES.values() if (changed := change(right)) != right}
        near |= set(mutate_query(right, problem.schema)[:: 3 if index % 3 else 1])
        # the oracle: other databases, with rows of both kinds
        numbers = tuple(map(int, re.findall(r"\b[0-9]+\b", right))) or (15,)
        seeds = [(seed, numbers if seed % 2 else ()) for seed in range(60)]
        others = [connect(problem.schema, 10**6 + seed, threading.get_ident(), like) for seed, like in seeds]
        equal = {query for query in near if verify(query, right, others)[0]["exact"] == 1}
        databases = list(DrawnDatabases(problem.schema, problem.seeds, right).connect())
        count += len(near - equal)
        passed += [(right, query) for query in near - equal if verify(query, right, databases)[0]["exact"] == 1]
        assert verify(right, right, databases)[0]["exact"] == 1
    assert count > 400 and len(passed) < 0.01 * count, passed
