"""No retired words, functions are verbs, and the field's words are found in the repository."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXEMPT = {
    "mmrl/config/renamed.yaml",
    "scripts/restamp.yaml",
    "tests/config/test_renamed.py",
    "tests/experiments/test_renames.py",
    "tests/test_vocabulary.py",
}
FILES = sorted(
    file
    for folder in ("mmrl", "tasks", "sims", "scripts", "conf", "tests", "docs")
    for suffix in ("py", "yaml", "md")
    for file in (ROOT / folder).rglob(f"*.{suffix}")
    if str(file.relative_to(ROOT)) not in EXEMPT
) + [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
CODE = [file for file in FILES if file.suffix == ".py" and file.relative_to(ROOT).parts[0] != "tests"]

# identifiers, keys and phrases without a legitimate use
RETIRED = (
    *("so-manieth", "whole_passes", "slow_critic", "slow_policy", "PricedLogprob", "SquaredQ", "NegativeQ"),
    *("EntropyPrice", "PricedSlack", "SlackPrice", "PreferredRatio", "PreferredValue", "AnswerError"),
    *("DropUniform", "KeepSolved", "KeepRates", "attempts_start", "attempt_demonstrations", "TruncatedRatio"),
    *("MaskedRatio", "ReferenceLead", "CellAdvantage", "StoredActions", "ProposedActions", "PeakAnchor"),
    *("BlendedAdvantage", "ContinuedEnv", "EnvSegments", "EnvEpisodes", "RecordedEpisodes", "FilmedEnv"),
    *("trust interval", "cut_by_length", "correction/effective", "drop_uniform", "masked_correction", "most_lost"),
    *("heeded", "named_action", "gae.decay", "gae.discount", "data.passes", "data.stages", "data.episodes"),
    *("data.prompts", "mmrl.stages", "mmrl.episodes", "mmrl.phases", "mmrl/stages", "mmrl/episodes", "mmrl/phases"),
    *("seconds/rollout", "rollout=attempts", "rollout=segments"),
)

PARTICIPLES = {
    *("beaten", "begun", "bought", "broken", "brought", "built", "caught", "chosen", "done", "drawn", "driven"),
    *("eaten", "fallen", "felt", "forgotten", "forbidden", "fought", "found", "frozen", "given", "gone", "grown"),
    *("heard", "held", "hidden", "kept", "known", "laid", "lent", "lost", "made", "meant", "met", "overridden"),
    *("paid", "proven", "risen", "said", "seen", "sent", "shaken", "shown", "sought", "spent", "spoken", "stolen"),
    *("struck", "stuck", "swept", "taken", "taught", "thought", "thrown", "told", "torn", "understood", "woken"),
    *("won", "worn", "written"),
}
VERBS = {
    *("bed", "bleed", "breed", "embed", "exceed", "feed", "heed", "need", "proceed", "seed", "shed", "speed"),
    *("succeed"),
}
LINKS = {"again", "as", "at", "by", "for", "from", "in", "into", "of", "on", "to", "when", "where", "with"}

SHARED_CLASS_NAMES = {
    "Problem",  # what a task draws and writes its prompt from; no other folder imports it, and splits hash its repr
    "Step",  # of a program to write, a countdown and a graph; no other folder imports it
}
"""Class names that several folders of tasks/ have; nothing of mmrl/ or sims/ is called so."""

LOCALS = {
    *("asked", "begun", "chosen", "drawn", "found", "given", "gone", "held", "kept", "known", "left", "made", "meant"),
    *("named", "of", "own", "said", "seen", "sent", "shown", "taken", "there", "told", "wanted", "written", "its"),
}
"""Participles and pronouns that say nothing of a value: a local name is a noun of it."""

RIDDLE = re.compile(r"\b(nobody|somebody|heeds?|lives|told|posed|so-manieth)\b")

FIELD = (
    *("replay buffer", "target network", "trust region", "value function", "learning_starts", "gae_lambda", "GSPO"),
    *("dynamic sampling", "importance sampling", "packing", "PolyakUpdate", "CISPO", "DPOLoss"),
)


@functools.cache
def read(file: Path) -> str:
    return file.read_text()


@functools.cache
def list_nodes(file: Path) -> list[ast.AST]:
    """Every node of a module, in the order of `ast.walk`."""
    return list(ast.walk(ast.parse(read(file))))


@pytest.fixture(scope="module", autouse=True)
def forgotten():
    """Files are read and parsed once for all tests of this module, and not kept for others."""
    yield
    read.cache_clear()
    list_nodes.cache_clear()


def _is_participle(word: str) -> bool:
    return word in PARTICIPLES or (word.endswith("ed") and len(word) > 3 and word not in VERBS)


def _is_participle_name(name: str) -> bool:
    """A participle alone, or before a preposition: `told`, `bound_of`. Before a noun it belongs to the noun."""
    words = name.strip("_").split("_")
    return _is_participle(words[0]) and (len(words) == 1 or words[1] in LINKS)


@pytest.mark.parametrize("word", RETIRED)
def test_a_retired_word_is_not_used(word):
    pattern = re.compile(rf"(?<![\w.]){re.escape(word)}(?![\w])")
    assert [f"{file.relative_to(ROOT)}" for file in FILES if word in read(file) and pattern.search(read(file))] == []


def test_a_function_is_a_verb_and_no_past_participle():
    found = []
    for file in CODE:
        for node in list_nodes(file):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not _is_participle_name(node.name):
                continue
            if not any("property" in ast.unparse(decorator) for decorator in node.decorator_list):
                found.append(f"{file.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert found == []


def test_a_class_has_a_name_of_its_own():
    """Private classes included; a task may share a name with another task if neither is imported elsewhere."""
    places: dict[str, list[Path]] = {}
    for file in CODE:
        folder = file.relative_to(ROOT)
        for node in list_nodes(file):
            if isinstance(node, ast.ClassDef) and folder.parts[0] in ("mmrl", "tasks", "sims"):
                places.setdefault(node.name, []).append(folder)
    several = {name: files for name, files in places.items() if len(files) > 1}
    assert set(several) == SHARED_CLASS_NAMES, several
    for name, files in several.items():
        folders = {file.parent for file in files}
        assert len(folders) == len(files) and all(file.parts[0] == "tasks" for file in files), f"{name}: {files}"
        modules = {".".join(file.with_suffix("").parts) for file in files}
        for file in CODE:
            for node in list_nodes(file):
                if isinstance(node, ast.ImportFrom) and node.module in modules:
                    shared = name in [alias.name for alias in node.names]
                    assert not shared or file.relative_to(ROOT).parent in folders, f"{file}: {node.module}.{name}"


def test_a_first_line_of_a_docstring_is_literal():
    """It begins with no participle before a preposition (`Called by ...`), and has no word of a riddle."""
    found = []
    for file in CODE:
        for node in list_nodes(file):
            kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
            first = ((isinstance(node, kinds) and ast.get_docstring(node)) or "").split("\n\n")[0].lower()
            if _is_participle_name("_".join(re.findall(r"\w+", first)[:2])) or RIDDLE.search(first):
                found.append(f"{file.relative_to(ROOT)}: {first}")
    assert found == []


def test_prose_of_the_package_has_no_word_of_a_riddle():
    package = [file for file in FILES if file.relative_to(ROOT).parts[0] in ("mmrl", "tasks", "sims", "scripts")]
    lines = ((file, line) for file in package for line in read(file).splitlines())
    assert [(str(file), line) for file, line in lines if RIDDLE.search(line)] == []


def test_local_names_are_nouns_of_the_value():
    """At most 0.5 % of assigned names; attributes and arguments are public words and have their own rules."""
    package = [file for file in CODE if file.relative_to(ROOT).parts[0] in ("mmrl", "tasks", "sims")]
    names = [
        (f"{file.relative_to(ROOT)}:{node.lineno} {node.id}", node.id.lstrip("_"))
        for file in package
        for node in list_nodes(file)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    wrong = [place for place, name in names if name in LOCALS]
    assert len(wrong) <= 0.005 * len(names), "\n".join(wrong)


@pytest.mark.parametrize("word", FIELD)
def test_a_word_of_the_field_is_found(word):
    pattern = re.compile(re.escape(word), re.IGNORECASE)
    assert any(pattern.search(read(file)) for file in FILES if file.relative_to(ROOT).parts[0] != "tests")


def test_the_rule_tells_verbs_from_participles():
    assert all(map(_is_participle_name, ("told", "_shown", "measured", "done_by", "asked_again")))
    assert not any(map(_is_participle_name, ("embed", "seed", "build", "clipped_surrogate", "read", "is_closed")))
