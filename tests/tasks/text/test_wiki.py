"""A synthetic knowledge base: disjoint splits, a search that finds, answers judged as open questions are."""

import pytest

from tasks.arithmetic import Arithmetic
from tasks.wiki import Search, Wiki
from tasks.wiki.data import knowledge_bases, names
from tasks.wiki.search import NotFound
from tasks.wiki.verify import normalise, verify
from tests.tasks.replies import reply


def test_nobody_of_the_held_out_knowledge_base_is_known_in_the_other():
    for hops in (1, 2):
        both = knowledge_bases(60, ("kin", "boss"), hops, 0.3, 0)
        known = {
            split: [n for f in knowledge_base.facts.values() for n in f.values()]
            for split, knowledge_base in both.items()
        }
        people = {split: {*both[split].facts, *names} for split, names in known.items()}
        assert not people["train"] & people["held_out"]
        assert len(both["held_out"].questions) == 18 * 2**hops and len(both["train"].questions) == 42 * 2**hops
        assert len(set(both["train"].questions)) == 42 * 2**hops


def test_the_search_is_over_the_pages_of_the_task_it_is_given():
    here, elsewhere = (Wiki(people=60, seed=seed) for seed in (0, 1))
    call = here.script(0)[0][1:3]
    assert Search(here).run(query=call) == " ".join(
        [call, *(w for f in here.knowledge_bases["train"].facts[call].items() for w in f)]
    )
    assert set(Search(here).pages) != set(Search(elsewhere).pages)
    with pytest.raises(ValueError, match="task=wiki alone, not those of Arithmetic"):
        Search(Arithmetic())


def test_names_are_short_distinct_and_no_other_word_of_the_knowledge_base():
    assert len(names(675, ("kin",))) == 675 and {len(name) for name in names(675, ("kin",))} == {2}  # 26 * 26 - "an"
    longer = names(676, ("kin", "boss"))
    assert len(set(longer)) == len(longer) == 26**3 - 2 and not {"the", "kin"} & set(longer)


def test_every_page_is_found_by_its_title():
    task, search = Wiki(people=60), Search(Wiki(people=60))
    for split in ("train", "held_out"):
        here = task.on(split)
        for index in range(len(here)):
            for call in here.script(index)[:-1]:
                assert search.run(query=call[1:3]).startswith(call[1:3] + " ")


def test_answers_follow_the_pages():
    task, search = Wiki(people=60), Search(Wiki(people=60))
    name, first, second = task[0].messages[0]["content"].rstrip("?").split()
    for relation in (first, second):
        words = search.run(query=name).split()
        name = words[words.index(relation) + 1]
    assert task[0].answer == name == task.script(0)[-1]
    assert task.score(reply(task[0], name)) == {"exact": 1.0}


@pytest.mark.parametrize("expert_hops, least, most", [(0, 0.1, 0.45), (1, 0.3, 0.7), (2, 0.999, 1.001)])
def test_the_expert_may_follow_the_first_relations_alone(expert_hops, least, most):
    """Of two relations one is taken at random: half of the searches that are not followed go the right way."""
    plain, task = Wiki(people=60), Wiki(people=60, expert_hops=expert_hops)
    right = [task.script(i)[-1] == task[i].answer for i in range(len(task))]
    assert least < sum(right) / len(right) < most
    assert all(task.script(i)[: expert_hops + 1] == plain.script(i)[: expert_hops + 1] for i in range(len(task)))


def test_what_is_nowhere_is_an_error_with_a_name():
    with pytest.raises(NotFound):
        Search(Wiki(people=60)).run(query="zzz!")
    assert Search(Wiki(people=60), top=2).run(query="kin").count(";") == 1


def test_normalised_answers():
    # punctuation is deleted and leaves no space; articles go, spaces are squeezed
    assert normalise("The Eiffel-Tower!") == "eiffeltower"
    assert normalise("An  apple, the pie") == "apple pie"
    assert verify("so <answer>x</answer> no, <answer>The Pie</answer>", "pie") == {"exact": 1.0}
    assert verify("", "ko") == {"exact": 0.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"people": 5}, "more than 3"),
        ({"people": 10_001}, "at most 10000 people"),
        ({"relations": ["a"]}, "3 letters"),
        ({"hops": 0}, "1 hop"),
        ({"split": "x"}, "splits"),
    ],
)
def test_what_makes_no_knowledge_base_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Wiki(**options)
