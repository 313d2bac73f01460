"""Composed string functions: golden outputs, disjoint splits, and answers that only look right."""

from itertools import combinations, product
from pathlib import Path

import pytest
import yaml

from mmrl.core.rng import derive_rng
from tasks.strings import Strings
from tasks.strings.functions import FUNCTIONS, apply_chain
from tasks.strings.task import verify
from tests.tasks.replies import reply

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = {
    **{"A": "okalb", "B": "lako", "C": "blak", "D": "bbllaakkoo", "E": "blakoblako", "F": "lakob", "G": "oblak"},
    **{"H": "abklo", "I": "olkba", "J": "blk", "K": "ao", "L": "cmblp", "M": "akzjn", "N": "blakob", "O": "oblako"},
    **{"P": "olakb", "Q": "blako", "R": "bao", "S": "lk", "T": "blakookalb", "U": "lbkao", "V": "bla", "W": "ko"},
    **{"X": "bleku", "Y": "yozpl"},
}


def test_each_function_by_hand():
    assert {name: function("blako") for name, (_, function) in FUNCTIONS.items()} == GOLDEN
    assert all(function("") == "" for _, function in FUNCTIONS.values())
    assert FUNCTIONS["Q"][1]("abacab") == "abc" and FUNCTIONS["P"][1]("a") == "a"


def test_the_innermost_function_runs_first():
    # A reverses, N appends the first letter
    assert apply_chain(("N", "A"), "abc") == ["cba", "cbac"]
    assert apply_chain(("A", "N"), "abc") == ["abca", "acba"]
    assert apply_chain(("A", "N", "B"), "") == ["", "", ""]


def test_prompt_answer_and_demonstration_agree():
    task = Strings(levels=[1, 2, 4], steps=True, definitions=True)
    for index in range(40):
        prompt = task[index]
        *said, asked = prompt.messages[0]["content"].splitlines()
        *chain, word = asked.removesuffix("=").rstrip(")").split("(")
        assert prompt.answer == apply_chain(chain, word)[-1] and prompt.info == {"level": len(chain)}
        assert [line[0] for line in said] == list(dict.fromkeys(chain))
        lines = task.demonstrate(index).splitlines()
        assert len([line for line in apply_chain(chain, word) if line]) >= len([line for line in lines if line]) > 0
        scores = task.score(reply(prompt, task.demonstrate(index)))
        assert scores == {"exact": 1.0, "letters": 1.0, "format": 1.0}


def test_no_composition_of_the_held_out_split_is_trained_on():
    train = Strings(functions=list("ABCDFGN"), levels=[2], count=2000)
    chains = [{train.on(s).problem(i)[0] for i in range(len(train.on(s)))} for s in ("train", "held_out")]
    assert not chains[0] & chains[1] and len(chains[0] | chains[1]) == 49
    single = Strings(levels=[1])
    words = [{single.on(s).problem(i) for i in range(500)} for s in ("train", "held_out")]
    assert not words[0] & words[1] and {chain for chain, _ in words[0]} == {(name,) for name in FUNCTIONS}


def outputs(names, level):
    """What each composition does to words that are not those of the task."""
    rng = derive_rng("strings", "test")
    words = ["".join(rng.choice(list(kind), 3)) for kind in ("abcdefghijklmnopqrstuvwxyz", "abcu") for _ in range(100)]
    return {chain: tuple(apply_chain(chain, word)[-1] for word in words) for chain in product(names, repeat=level)}


def test_a_level_has_no_composition_that_fewer_functions_compute():
    """Against all 155 compositions: of 25 pairs 20 are of level 2, and of 125 triples 72 of level 3."""
    first, second, third = (outputs("AFLNU", level) for level in (1, 2, 3))
    identity = outputs("A", 2)[("A", "A")]  # reversed twice
    easy = {identity, *first.values()}
    pairs = {chain for chain, does in second.items() if does not in easy}
    easy |= set(second.values())
    triples = {chain for chain, does in third.items() if does not in easy}
    assert (len(pairs), len(triples)) == (20, 72)
    task = Strings(functions="AFLNU", levels=[1, 2, 3], letters=[3, 3], irreducible=True, count=1500)
    drawn = {part.problem(index)[0] for part in (task, task.on("held_out")) for index in range(len(part))}
    assert {chain for chain in drawn if len(chain) == 2} == pairs
    assert {chain for chain in drawn if len(chain) == 3} <= triples and len(drawn) > 80


def test_compositions_that_are_one_function_are_in_one_split():
    task = Strings(functions="AFLNU", levels=[2], letters=[3, 3], irreducible=True, count=500)
    does, split = outputs("AFLNU", 2), {}
    for part in (task, task.on("held_out")):
        for index in range(len(part)):
            chain = part.problem(index)[0]
            assert split.setdefault(does[chain], part.split) == part.split
    assert set(split.values()) == {"train", "held_out"}
    assert does[("L", "A")] == does[("A", "L")]  # such as these


def test_too_many_compositions_are_refused():
    with pytest.raises(ValueError, match="irreducible compares all compositions of up to 4 of 25 functions"):
        Strings(levels=[4], irreducible=True)


@pytest.mark.parametrize(
    ("text", "exact", "letters", "well_formed"),
    [
        ("acba", 1, 1, 1),
        ("abca\nacba\n", 1, 1, 1),  # the steps before it
        ("acbb", 0, 0.75, 1),
        ("acb", 0, 0.75, 1),
        ("acbaacba", 0, 0.5, 1),  # stuffing halves the share of right places
        ("acba" * 5000, 0, 0.0002, 1),
        ("ACBA", 0, 0, 0),
        ("acba.", 0, 0, 0),
        ("acba acba", 0, 0, 0),
        ("acba\nbcaa", 0, 0.5, 1),
        ("асbа", 0, 0, 0),  # Cyrillic letters
        ("", 0, 0, 0),
    ],
)
def test_verify(text, exact, letters, well_formed):
    assert verify(text, "acba") == {"exact": exact, "letters": letters, "format": well_formed}


def test_a_guess_is_a_word_of_the_problem_s_size():
    task = Strings(letters=(3, 4), extract="tags")
    guesses = {task.guess(task[0], derive_rng("guess", n)) for n in range(50)}
    assert len(guesses) > 45 and {len(guess) - len("<answer></answer>") for guess in guesses} == {3, 4}


@pytest.mark.parametrize(
    "options",
    [{"levels": []}, {"levels": [0]}, {"letters": (3,)}, {"letters": (5, 3)}, {"functions": ["Z"]}, {"question": "?"}],
)
def test_arguments_without_problems_are_refused(options):
    with pytest.raises(ValueError, match="strings"):
        Strings(**options)


def test_a_split_without_problems_is_an_error_that_says_what_to_change():
    task = Strings(functions=["A"], levels=[2])
    empty = next(part for part in (task, task.on("held_out")) if part.split_of((("A", "A"), "abc")) != part.split)
    with pytest.raises(ValueError, match="too few distinct problems"):
        empty[0]


@pytest.mark.parametrize("letters", [(1, 1), (2, 2), (3, 3), (4, 4), (2, 3), (3, 4), (3, 6)])
def test_functions_that_are_one_on_all_words_are_refused(letters):
    """The oracle: all words of two letters of the alphabet and two others, whose lengths are asked for."""
    words = ["".join(w) for n in range(letters[0], min(letters[1], 4) + 1) for w in product("abez", repeat=n)]
    words += ["bcdfg", "uvwxyz", "xyzzy"] if letters[1] > 4 else []
    for names in combinations("AFGPUEQHLX", 2):
        one, other = (FUNCTIONS[name][1] for name in names)
        if all(one(word) == other(word) for word in words):
            with pytest.raises(ValueError, match=f"{names[0]} and {names[1]} are one function on words of"):
                Strings(functions=names, letters=letters)
        else:
            Strings(functions=names, letters=letters)


def test_the_chains_of_the_recipe_have_many_outputs():
    task = yaml.safe_load((ROOT / "conf" / "recipe" / "problems" / "grpo_strings.yaml").read_text())["data"]["task"]
    outputs = {
        tuple(apply_chain(chain, word)[-1] for word in ("abc", "kqz")) for chain in product(task["functions"], repeat=3)
    }
    assert len(outputs) > 40  # of 125; six for functions that permute three letters
