"""Search of documents: scores of BM25 by hand, passages, and hostile queries and files."""

import json
import math
import os
import threading

import pytest

from mmrl.core.types import Context, Prompt, Sampling
from mmrl.rollouts.text.tool_demonstrations import ToolDemonstrations
from mmrl.rollouts.text.tools import ToolUse
from mmrl.schedules.scalars import with_scalar
from mmrl.tools.base import BadArguments
from mmrl.tools.call_parser import TagParser, ToolCall
from mmrl.tools.executor import ToolExecutor
from mmrl.tools.search.documents import Passage, list_documents, read_passages, split_passages
from mmrl.tools.search.index import BM25Index, find_words
from mmrl.tools.search.noise import NoisySearch
from mmrl.tools.search.tool import DocumentSearch, NothingFound, QueryTooLong, SearchTooSlow
from tasks.wiki import Wiki
from tasks.wiki.data import page
from tests.rollouts.text.test_tools import POLICY

CORPUS = ("red fox runs", "red red fish swims in water", "blue bird flies", "a green frog", "grey wolf runs far away")
"""20 words in 5 passages."""


def build(texts):
    return BM25Index([Passage(str(number), text) for number, text in enumerate(texts)])


def bm25(query, texts, k1=1.2, b=0.75):
    """The formula of the index's docstring, in plain Python."""
    documents = [text.split() for text in texts]
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for words in documents:
        score = 0.0
        for word in query:
            n, f = sum(word in other for other in documents), words.count(word)
            idf = max(math.log((len(documents) - n + 0.5) / (n + 0.5)), 1e-6)
            score += idf * f * (k1 + 1) / (f + k1 * (1 - b + b * len(words) / mean))
        scores.append(score)
    return scores


def test_scores_are_those_of_okapi_by_hand():
    """Word "red", N = 5, n = 2: idf = log(3.5 / 2.5) = 0.33647. The mean length is 20 / 5 = 4.

    "red fox runs": f = 1, |d| = 3: 2.2 / (1 + 1.2 (0.25 + 0.75 * 3 / 4)) = 2.2 / 1.975 = 1.11392, idf times: 0.37480.
    "red red fish swims in water": f = 2, |d| = 6: 4.4 / (2 + 1.2 (0.25 + 0.75 * 6 / 4)) = 4.4 / 3.65: 0.40561.
    """
    hits = build(CORPUS).search(["red"], 5, 5.0)
    assert [(hit.passage.source, round(hit.score, 5)) for hit in hits] == [("1", 0.40561), ("0", 0.37480)]


@pytest.mark.parametrize("query", ["red fox", "runs", "a wolf in water", "green blue red grey", "fish nowhere"])
def test_scores_are_the_formula_for_every_passage(query):
    expected = {str(n): s for n, s in enumerate(bm25(query.split(), CORPUS)) if s > 0}
    hits = build(CORPUS).search(query.split(), 5, 5.0)
    assert {hit.passage.source: hit.score for hit in hits} == pytest.approx(expected)
    assert [hit.score for hit in hits] == pytest.approx(sorted(expected.values(), reverse=True))


def test_a_word_of_most_passages_has_the_floor_of_idf_and_equal_scores_keep_their_order():
    hits = build(["the cat", "the dog", "the cow", "bird song"]).search(["the"], 3, 5.0)
    assert [hit.passage.source for hit in hits] == ["0", "1", "2"]
    assert hits[0].score == pytest.approx(1e-6)  # f = 1 and |d| = mean |d|: (k1 + 1) / (1 + k1) = 1


def test_words_have_no_case_and_no_accents():
    index = build(["Crème brûlée, 2-fold", "Straße_42", "日本"])
    for query, source in {"CREME": "0", "fold": "0", "straße": "1", "42": "1", "日本": "2"}.items():
        assert [hit.passage.source for hit in index.search(find_words(query), 3, 5.0)] == [source], query


def folder_of(tmp_path, files):
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(tmp_path)


FILES = {
    "guide.md": "# Pump\n\nThe pump needs oil.\n\n" + "Turn the valve slowly. " * 40,
    "sub/facts.jsonl": '{"title": "Aron", "text": "lives in Oslo"}\n\n{"contents": "Berta lives in Rome"}\n',
    "notes.txt": "\ufeffThe cellar is locked.\r\n\r\nThe key hangs above.",
    ".hidden/secret.txt": "hidden oil",
    "image.png": b"\xff\xfe",
}


def test_files_are_split_into_passages_with_their_sources(tmp_path):
    documents = list_documents(folder_of(tmp_path, FILES), "KEY")
    assert [document.name for document in documents] == ["guide.md", "notes.txt", "sub/facts.jsonl"]
    passages = read_passages(documents, 200, "KEY")
    texts = {source: [p.text for p in passages if p.source == source] for source in {p.source for p in passages}}
    assert texts["notes.txt"] == ["The cellar is locked.\n\nThe key hangs above."]
    assert texts["sub/facts.jsonl:1"] == ["Aron\nlives in Oslo"] and texts["sub/facts.jsonl:3"] == [
        "Berta lives in Rome"
    ]
    assert texts["guide.md"][0] == "# Pump\n\nThe pump needs oil." and all(len(t) <= 200 for t in texts["guide.md"])


@pytest.mark.parametrize("size", [1, 7, 40, 1000])
def test_no_word_is_lost_where_text_is_cut(size):
    text = FILES["guide.md"] + "\n \n" + "x" * 97 + " end"
    passages = split_passages(text, size)
    assert "".join("".join(passages).split()) == "".join(text.split())
    assert max(map(len, passages)) <= size


def test_the_tool_returns_the_best_passages_and_names_their_files(tmp_path):
    tool = DocumentSearch(folder_of(tmp_path, FILES), top=1)
    assert tool.run(query="where does berta live? rome") == "[sub/facts.jsonl:3] Berta lives in Rome"
    assert DocumentSearch(str(tmp_path), top=1, sources=False).run(query="oslo") == "Aron\nlives in Oslo"
    assert "hidden" not in DocumentSearch(str(tmp_path), top=9).run(query="oil")
    assert tool.index is DocumentSearch(str(tmp_path), top=2).index
    assert tool.schema["function"]["parameters"]["required"] == ["query"]
    (tmp_path / "notes.txt").write_text("The garden is open.")
    assert DocumentSearch(str(tmp_path)).run(query="garden") == "[notes.txt] The garden is open."


HOSTILE = {
    'rome" OR "oslo': "rome",
    "rome AND NOT berta": "rome",
    "text:rome": "rome",
    "NEAR(rome, 2)": "rome",
    "rome*": "rome",
    "^rome; drop table passages --": "rome",
    "rome\0": "rome",
    "\ud800 rome": "rome",
    "{source text}:rome + -": "rome",
    "\u0345\u0900 rome ²": "rome",
}


@pytest.mark.parametrize("query", HOSTILE)
def test_syntax_of_a_query_is_no_syntax(query, tmp_path):
    executor, tools = ToolExecutor(), {"search": DocumentSearch(folder_of(tmp_path, FILES))}
    pending = executor.submit(ToolCall("search", {"query": query}), tools)
    executor.wait([pending])
    result = executor.result(pending)
    assert result.outcome == "ok" and "Rome" in result.text


@pytest.mark.parametrize(
    "query, error",
    [
        ("", BadArguments),
        ('"*^():-', BadArguments),
        ("zebra", NothingFound),
        ("x" * 1001, QueryTooLong),
        (" ".join(map(str, range(33))), QueryTooLong),
    ],
)
def test_a_query_that_cannot_be_answered_has_an_error_that_the_policy_reads(query, error, tmp_path):
    with pytest.raises(error, match=r"write|no passage"):
        DocumentSearch(folder_of(tmp_path, FILES)).run(query=query)


def test_a_search_past_its_limit_is_the_callers_error_and_the_next_one_works():
    index = build(["common word here"] * 3000 + ["rare"])
    with pytest.raises(TimeoutError, match="took longer than"):
        index.search(["common"], 3, 0.0)
    assert index.search(["rare"], 3, 5.0)[0].passage.text == "rare"


def test_the_policy_reads_of_a_search_that_is_too_slow(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "common"}\n' * 3000)
    with pytest.raises(SearchTooSlow, match="rarer words"):
        DocumentSearch(str(tmp_path), search_s=1e-9).run(query="common")


def test_many_threads_search_one_index():
    index, wrong = build([f"word{n} same" for n in range(200)]), []

    def search(offset):
        for n in range(offset, 200, 8):
            if index.search([f"word{n}"], 1, 5.0)[0].passage.source != str(n):
                wrong.append(n)

    threads = [threading.Thread(target=search, args=(offset,)) for offset in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_all_files_that_cannot_be_searched_are_named_in_one_error(tmp_path):
    path = folder_of(tmp_path, {"a.txt": b"\xff\xfe", "b.jsonl": '{"text": 3}', "c.jsonl": "{", "d.txt": "fine"})
    with pytest.raises(ValueError, match=r"rollout\.tools\.search\.path: 3 files cannot be searched") as error:
        DocumentSearch(path)
    message = str(error.value)
    assert "a.txt: not UTF-8 text (byte 0)" in message and "b.jsonl, line 1: `text`" in message and "c.jsonl" in message
    os.mkfifo(tmp_path / "e.txt")
    with pytest.raises(ValueError, match=r"1 files cannot .*\n.*e.txt cannot be read \(it is a pipe, not a file\)"):
        DocumentSearch(path)


@pytest.mark.parametrize(
    "files, name, message",
    [
        ({}, "", "is empty: name a folder"),
        ({}, "nowhere", "nowhere does not exist"),
        ({"a.png": b"x"}, ".", "holds no file that ends in .txt"),
        ({"a.png": b"x"}, "a.png", "holds no file that ends in .txt"),
        ({"a.txt": " \n\n "}, ".", "the 1 files hold no text"),
    ],
)
def test_a_path_without_documents_is_refused(files, name, message, tmp_path, monkeypatch):
    monkeypatch.chdir(folder_of(tmp_path, files))
    with pytest.raises(ValueError, match=message):
        DocumentSearch(name)


def test_sizes_are_bounded(tmp_path, monkeypatch):
    path = folder_of(tmp_path, {"a.txt": "word " * 30, "b.txt": "word " * 30})
    monkeypatch.setattr("mmrl.tools.search.documents.MAX_FOLDER", 200)
    with pytest.raises(ValueError, match="holds 300 bytes, more than 200"):
        DocumentSearch(path)
    monkeypatch.setattr("mmrl.tools.search.documents.MAX_FILE", 100)
    with pytest.raises(ValueError, match=r"a\.txt: 150 bytes, more than the 100"):
        DocumentSearch(path)


def test_a_sqlite_without_full_text_search_is_refused(monkeypatch):
    monkeypatch.setattr("mmrl.tools.search.index.MODULE", "fts99")
    with pytest.raises(RuntimeError, match=r"no full-text search \(no such module: fts99\); use a Python whose SQLite"):
        build(["text"])


def test_an_episode_reads_the_passage_that_has_its_answer(tmp_path):
    """The pages of the wiki as a file: the expert's searches of two hops end on a page with the answer."""
    task = Wiki(people=60)
    with open(tmp_path / "pages.jsonl", "w") as file:
        for knowledge_base in task.knowledge_bases.values():
            for name, facts in knowledge_base.facts.items():
                file.write(json.dumps({"title": name, "text": page(name, facts)}) + "\n")
    parser = TagParser("{name}", ";", "[{text}]", "[{name}]")
    rollout = ToolDemonstrations({"?": DocumentSearch(str(tmp_path), top=1, sources=False)}, parser, max_turns=2)
    ctx = Context(task, None, POLICY, Sampling(), seed=0, iteration=0)
    for episode in rollout.collect([(slot, task[slot]) for slot in range(20)], ctx):
        done = episode.turns[0].completion
        last_result = POLICY.decode(done.action[~done.action_mask].tolist()).split("[")[-1]
        assert episode.prompt.answer in last_result.split("]")[0].split()
        assert episode.info["counts"] == {"tools/?/ok": 2} and task.score(episode) == {"exact": 1.0}


def test_noise_takes_the_place_of_the_best_passages_for_a_share_of_the_queries(tmp_path):
    """Of 400 queries 120 are noisy in the mean at a share of .3, with a standard deviation of sqrt(400 .3 .7) = 9.2."""
    rows = (json.dumps({"text": f"word{n} text"}) for n in range(400))
    path = folder_of(tmp_path, {"a.jsonl": "\n".join(rows)})
    plain = DocumentSearch(path, top=1)
    results = [plain.run(query=f"word{n}") for n in range(400)]
    noisy = {}
    for noise in (0.0, 0.3, 0.6, 1.0):
        tool = NoisySearch(path, noise, top=1).start(Prompt("task/train/3"))
        texts = [tool.run(query=f"word{n}") for n in range(400)]
        assert texts == [tool.run(query=f"word{n}") for n in range(400)]
        noisy[noise] = {n for n in range(400) if texts[n] != results[n]}
    assert not noisy[0.0] and len(noisy[1.0]) > 390  # a random passage is the best one once in 400 times
    assert noisy[0.3] < noisy[0.6] < noisy[1.0] and 90 < len(noisy[0.3]) < 150
    other = NoisySearch(path, 0.3, top=1).start(Prompt("task/train/4"))
    assert {n for n in range(400) if other.run(query=f"word{n}") != results[n]} != noisy[0.3]
    with pytest.raises(NothingFound):
        NoisySearch(path, 1.0).run(query="zebra")
    with pytest.raises(ValueError, match="noise must be in"):
        NoisySearch(path, 1.5)


def test_noise_follows_a_schedule(tmp_path):
    path = folder_of(tmp_path, {"a.jsonl": "\n".join(json.dumps({"text": f"word{n}"}) for n in range(50))})
    rollout = ToolUse({"search": NoisySearch(path, 1.0, top=1, sources=False)})
    for noise, least, most in ((1.0, 0, 5), (0.0, 50, 50)):
        rollout = with_scalar(rollout, ("tools", "search", "noise"), noise)
        tool = rollout.tools["search"].start(Prompt("task/train/0"))
        assert least <= sum(tool.run(query=f"word{n}") == f"word{n}" for n in range(50)) <= most
    with pytest.raises(ValueError, match="noise must be in"):
        with_scalar(rollout, ("tools", "search", "noise"), 2.0)
