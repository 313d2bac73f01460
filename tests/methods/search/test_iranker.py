"""IRanker: the reward of a removal by hand, whole rankings by removals, and the pools."""

from dataclasses import dataclass

import pytest
import torch

from mmrl.core.errors import ConfigError
from mmrl.core.types import Completion, Context, Sampling
from mmrl.methods.search.iranker import Elimination, RemovalReward, read_removal, score_removal
from mmrl.rewards.scoring import Scorer
from tasks.arithmetic import Arithmetic
from tasks.ranking.pools import Candidates, Pools
from tests.tasks.replies import reply

POOL, GOLD = ["film a", "film b", "film c"], "film b"
TASK = Pools()
SHORT = ("(", ")", "[", "]")
CANDIDATES = Candidates((("c", 3), ("a", 7), ("f", 1), ("d", 5)), rising=True)
PROMPT = TASK.write_prompt(CANDIDATES, "pools/train/0")


def test_the_reward_of_a_removal_by_hand():
    """A distractor 1; the gold item 0; a name that is not there -.5; no answer and no tag -1 - 1 - 4 * .25 = -3."""
    texts = {
        "<think>x</think><answer>film a</answer>": (1.0, 0.0, 0.0),
        " <think>\n</think>\n<answer> film c </answer>\n": (1.0, 0.0, 0.0),
        "<think>x</think><answer>film b</answer>": (0.0, 0.0, 0.0),
        "<think>x</think><answer>film d</answer>": (-0.5, 0.0, 0.0),
        "film a": (-1.0, -1.0, -1.0),
        "<answer>film a</answer>": (1.0, -1.0, -0.5),  # no thought: two tags are missing
        "<think>x</think>so <answer>film a</answer>": (1.0, -1.0, 0.0),
        "<think>x</think><answer>film b</answer><answer>film a</answer>": (1.0, 0.0, -0.5),  # two tags twice
    }
    assert {text: tuple(score_removal(text, POOL, GOLD).values()) for text in texts} == texts
    assert read_removal("(x)[f]", SHORT) == "f" and read_removal("(x)f", SHORT) is None


def test_the_reward_reads_the_pool_of_the_prompt():
    reward = RemovalReward({"exclude": 1.0, "format": 1.0, "tags": 1.0}, SHORT)
    episodes = [reply(PROMPT, text) for text in ("(f1)[f]", "(f1)[a]", "(f1)[x]", "f")]
    Scorer(TASK, reward).score(episodes)
    assert [episode.reward for episode in episodes] == [1, 0, -0.5, -3]  # a has 7, the largest value


@dataclass
class Removing:
    """An engine that removes these candidates in turn; it notes what it reads."""

    names: list

    def __post_init__(self):
        self.read, self.seeds = [], []

    def sample(self, requests, sampling):
        self.read += [request.observation["messages"][0]["content"] for request in requests]
        self.seeds += [request.seed for request in requests]
        one = torch.ones(1)
        texts = [f"()[{self.names.pop(0)}]" for _ in requests]
        return [Completion({}, one.long(), one, one.bool(), text) for text in texts]


def rank(*names, candidates=CANDIDATES):
    engine = Removing(list(names))
    prompt = TASK.write_prompt(candidates, "pools/held_out/0")
    (episode,) = Elimination(SHORT).collect([(0, prompt)], Context(TASK, engine, None, Sampling(), 0, 0))
    return episode, engine


def test_a_ranking_is_the_reversed_order_of_removals():
    episode, engine = rank("f", "c", "d")
    assert engine.read == ["c3 a7 f1 d5 +", "c3 a7 d5 +", "a7 d5 +"] and len(set(engine.seeds)) == 3
    assert episode.output == "a d c f" and episode.info["removed"] == ["f", "c", "d"] and len(episode.turns) == 3
    assert TASK.score(episode) == {"exact": 1.0, "reciprocal_rank": 1.0}
    # the best candidate is removed second of three, so it is third
    assert rank("f", "a", "c")[0].output == "d c a f"
    assert TASK.score(rank("f", "a", "c")[0]) == {"exact": 0.0, "reciprocal_rank": pytest.approx(1 / 3)}


def test_a_name_that_is_not_in_the_pool_removes_the_last_candidate():
    episode, _ = rank("x", "f", "d")  # x removes d, and d is gone then: f and, of c and a, a
    assert episode.info["removed"] == ["d", "f", "a"] and episode.info["counts"] == {"elimination/invalid": 2}
    two, _ = rank("c", candidates=Candidates((("c", 3), ("a", 7)), rising=True))
    assert two.output == "a c" and len(two.turns) == 1


def test_pools():
    assert PROMPT.messages[0]["content"] == "c3 a7 f1 d5 +" and PROMPT.answer == "a d c f"
    assert TASK.with_pool(PROMPT, ["f", "c"]).messages[0]["content"] == "c3 f1 +"
    falling = TASK.write_prompt(Candidates(CANDIDATES.pairs, rising=False), "pools/train/0")
    assert falling.info["gold"] == "f" and falling.messages[0]["content"].endswith(" -")
    sizes = {len(TASK.problem(i).pairs) for i in range(60)}
    assert sizes == {2, 3, 4, 5, 6} and all(len(TASK.on("held_out").problem(i).pairs) == 6 for i in range(10))


def test_demonstrations_remove_the_worst_or_any_candidate():
    removed = []
    for index in range(40):
        problem, text = TASK.problem(index), TASK.demonstrate(index)
        worst = problem.ranking()[-1]
        assert text == f"({worst}{dict(problem.pairs)[worst]})[{worst}]"
        weak = Pools(mistakes=1.0).demonstrate(index)
        removed.append(read_removal(weak, SHORT) == worst)
    assert 2 < sum(removed) < 30
    ranking = Pools(form="ranking")
    assert all(ranking.verify(ranking.demonstrate(i), ranking[i])["exact"] == 1 for i in range(10))
    assert TASK.verify("a d c", PROMPT) == TASK.verify("", PROMPT) == {"exact": 0.0, "reciprocal_rank": 0.0}


@pytest.mark.parametrize("options", [{"candidates": [1, 3]}, {"form": "sort"}, {"mistakes": 2}, {"tags": ["("]}])
def test_wrong_pools_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Pools(**options)


def test_wrong_tags_and_tasks_without_pools_are_refused():
    for tags in (["("], ["(", "(", "[", "]"], ["", ")", "[", "]"]):
        with pytest.raises(ConfigError, match=r"tags must be four different"):
            Elimination(tags)
        with pytest.raises(ConfigError, match=r"reward\.tags"):
            RemovalReward({}, tags)
    with pytest.raises(ConfigError, match=r"with_pool"):
        Elimination().check_task(Arithmetic())
    Elimination(SHORT).check_task(TASK)
