"""Optima: its reward by hand, dialogues and trees of scripted agents, the selections, and its rounds."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.schedule import list_steps
from mmrl.core.errors import ConfigError
from mmrl.core.types import Collector, Completion, Context, Episode, Prompt, Sampling, Turn
from mmrl.methods.agents.optima.dialogue import Dialogue, Message
from mmrl.methods.agents.optima.reward import OptimaReward, combine, measure_readability
from mmrl.methods.agents.optima.selection import BestDialogues
from mmrl.methods.agents.optima.tree import (
    DialogueTree,
    MessageNode,
    choose_node,
    edit_distance,
    is_similar,
    select_pairs,
)
from mmrl.rewards.scoring import Scorer
from tasks.split_facts.task import SplitFacts
from tests.rollouts.text.test_tools import POLICY

LAWS = [BestDialogues]
VIEW = {"view": "{facts}|{question}|{messages}", "separator": "/", "answer_pattern": "^=(.+)$"}


class OneProblem(SplitFacts):
    """One problem: agent 1 knows a3 b7, agent 2 knows f5 c1, and b f is asked."""

    def __getitem__(self, index):
        facts = {"facts": ["a3 b7", "f5 c1"]}
        return Prompt(f"split_facts/train/{index}", ({"role": "user", "content": "b f"},), answer="7 5", info=facts)


TASK = OneProblem()


def complete(text, tokens=None, ended="done"):
    count = len(text) + 1 if tokens is None else tokens
    one = torch.ones(count)
    return Completion({}, one.long(), -one, one.bool(), text, ended)


@dataclass
class Agents:
    """An engine whose reply to a view is the next of the replies listed for it; the last one is repeated."""

    replies: dict

    def __post_init__(self):
        self.views = []

    def sample(self, requests, sampling):
        return [self._reply(request.observation["messages"][0]["content"]) for request in requests]

    def _reply(self, view):
        replies = self.replies[view]
        reply = replies[min(self.views.count(view), len(replies) - 1)]
        self.views.append(view)
        return complete(*reply) if isinstance(reply, tuple) else complete(reply)


def context(engine, group_size=1, collector=None):
    extra = {} if collector is None else {"collector": collector}
    return Context(TASK, engine, None, Sampling(), 0, 0, group_size=group_size, **extra)


def test_the_reward_by_hand():
    """F1 1, 100 of 200 tokens, L 1.5: 1 - .6 / 2 + .7 / 1.5; with 200 tokens 1 - .6 + .466667."""
    readable = measure_readability([0.9, 1.5, 1.2], 100, 0.7)
    assert readable == pytest.approx(0.466667, abs=1e-6)
    assert combine(1.0, 100, 200, readable) == pytest.approx(1.166667, abs=1e-6)
    assert combine(1.0, 200, 200, readable) == pytest.approx(0.866667, abs=1e-6)
    # an empty dialogue is wrong, has no tokens and is unreadable; so is one of 501 tokens
    assert combine(0.0, 0, 200, measure_readability([], 0)) == -1.0
    assert measure_readability([1.0], 501) == -1.0 and measure_readability([1.0], 501, max_tokens=None) == 0.7
    assert combine(0.0, 0, 0, 0.0) == 0.0  # a group without tokens


def test_two_agents_talk_until_they_agree():
    views = {
        "a3 b7|b f|": ["b7"],
        "f5 c1|b f|b7": ["=7 1"],
        "a3 b7|b f|b7/=7 1": ["=7 5"],
        "f5 c1|b f|b7/=7 1/=7 5": ["f5"],
        "a3 b7|b f|b7/=7 1/=7 5/f5": ["=7  5"],
    }
    engine = Agents(views)
    (episode,) = Dialogue(**VIEW).collect([(3, TASK[0])], context(engine))
    assert engine.views == list(views)  # each reads its own facts, and all messages
    # 7 1 is replaced by 7 5, which the fact between does not take back; spaces count once
    assert episode.info["messages"] == ["b7", "=7 1", "=7 5", "f5", "=7 5"] and episode.output == "7 5"
    assert [turn.completion.output for turn in episode.turns[:-1]] == ["b7", "=7 1", "=7 5", "f5"]
    assert episode.tokens == 3 + 5 + 5 + 3 + 6 and TASK.score(episode) == {"exact": 1.0, "f1": 1.0}


def test_a_dialogue_without_agreement_has_no_answer():
    always = Agents({view: ["b7"] for view in ("a3 b7|b f|", "f5 c1|b f|b7", "a3 b7|b f|b7/b7")})
    (episode,) = Dialogue(**VIEW, max_messages=3).collect([(0, TASK[0])], context(always))
    assert episode.output == "" and episode.info["counts"] == {"dialogue/open": 1} and len(episode.turns) == 3
    cut = Agents({"a3 b7|b f|": [("=7", 3, "length")], "f5 c1|b f|=7": ["=7"]})
    (episode,) = Dialogue(**VIEW).collect([(0, TASK[0])], context(cut))
    assert (episode.output, episode.ended, len(episode.turns)) == ("", "length", 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"view": "{facts}|{question}"}, "messages"), ({"answer_pattern": "="}, "group"), ({"max_messages": 1}, "max_me")],
)
def test_wrong_dialogues_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Dialogue(**{**VIEW, **options})


def test_a_task_without_split_facts_is_refused():
    class Whole(OneProblem):
        def __getitem__(self, index):
            return replace(super().__getitem__(index), info={})

    with pytest.raises(ValueError, match=r"info\['facts'\].*SplitFacts"):
        Dialogue(**VIEW).check_task(Whole())
    Dialogue(**VIEW).check_task(TASK)


def dialogues(*messages):
    return [
        Episode(TASK[0], 0, i, [Turn(complete(text)) for text in texts], info={"messages": texts})
        for i, texts in enumerate(messages)
    ]


def test_the_readability_is_the_worst_mean_nll_of_a_message_under_the_base_model():
    """Against transformers' own log-probabilities of prompt, message and end, one message at a time."""
    group = dialogues(["b7", "=7 5", "=7 5"], ["f5", "b7"])
    bound = OptimaReward(question="~").bind(replace(context(None), models={"base": POLICY}))
    raw = {"messages": ({"role": "user", "content": "~"},), "images": ()}
    (prompt,) = POLICY.encode(raw).values()

    def nll(text):
        ids = torch.cat([prompt, POLICY.encode_demonstration(raw, text)])[None]
        with torch.no_grad():
            logprobs = POLICY.model(input_ids=ids).logits[0].log_softmax(-1)
        tokens = range(len(prompt), ids.shape[1])
        return -sum(float(logprobs[t - 1, ids[0, t]]) for t in tokens) / len(tokens)

    scores = bound.scores(group)
    worst = [max(nll(text) for text in episode.info["messages"]) for episode in group]
    assert_close([s["readability"] for s in scores], [0.7 / each for each in worst], rtol=1e-4, atol=1e-5)
    assert [s["tokens"] for s in scores] == [13, 6]
    for episode, score in zip(group, scores):
        episode.scores = {"f1": 0.5, **score}
    # 13 tokens are the most of the group
    expected = [0.5 - 0.6 + 0.7 / worst[0], 0.5 - 0.6 * 6 / 13 + 0.7 / worst[1]]
    assert list(bound(group)) == pytest.approx(expected, rel=1e-4)


def test_a_missing_base_model_is_refused():
    with pytest.raises(ConfigError, match=r"reward\.model='base'.*frozen_models"):
        OptimaReward().bind(context(None))
    (episode,) = dialogues(["b7"])
    assert OptimaReward(readability_weight=0).bind(context(None)).scores([episode]) == [
        {"tokens": 3.0, "readability": 0.0}
    ]


def test_the_best_dialogues_are_learned():
    """Best of four problems: .9, .5, .8, .7; int(.7 * 4) = 2 of them, .9 and .8; with a threshold of .85 the first."""
    rewards = {0: (0.1, 0.9), 1: (0.5, 0.5), 2: (0.8, 0.2), 3: (0.7,)}
    episodes = [Episode(TASK[0], g, i, reward=r) for g, each in rewards.items() for i, r in enumerate(each)]
    kept = BestDialogues()(episodes, context(None))
    assert [(e.group, e.sample_index) for e in kept] == [(0, 1), (2, 0)]
    assert [e.group for e in BestDialogues(min_reward=0.85)(episodes, context(None))] == [0]
    assert [(e.group, e.sample_index) for e in BestDialogues(share=1.0, min_reward=0.5)(episodes, context(None))] == [
        (0, 1), (2, 0), (3, 0), (1, 0),
    ]  # fmt: skip


def test_edit_distances_by_hand():
    assert [edit_distance(*pair) for pair in (("kitten", "sitting"), ("", "abc"), ("ab", "ba"), ("b7", "b7"))] == [
        3, 3, 2, 0,
    ]  # fmt: skip
    # one of 7 characters: 1 < .25 * 8; of 3: 1 = .25 * 4, which is not below
    assert is_similar("abcdefg", "abcdefx") and not is_similar("abc", "abx")


def grow(spec, parent=None):
    """A tree of (text, rewards, children)."""
    text, rewards, children = spec
    node = MessageNode(None if parent is None else Message(text, complete(text)), parent, rewards=list(rewards))
    node.children = [grow(child, node) for child in children]
    return node


def test_pairs_of_siblings_by_hand():
    """Children of the root .9 and .6 (gap .3), of the first .8 and .55 (.25), of the second .4 and .1, too low, and .7
    and .6 of the third level, too near. Half of the two pairs is the one with the larger chosen value."""
    root = grow(
        ("", (), [
            ("x", (0.8, 1.0), [("u", (0.8,), [("p", (0.7,), []), ("q", (0.6,), [])]), ("v", (0.55,), [])]),
            ("y", (0.6,), [("w", (0.4,), []), ("z", (0.1,), [])]),
        ])
    )  # fmt: skip
    names = lambda pairs: [(a.text, b.text) for a, b in pairs]  # noqa: E731
    assert names(select_pairs(root, share=1.0)) == [("x", "y"), ("u", "v")]
    assert names(select_pairs(root)) == [("x", "y")]
    assert names(select_pairs(root, min_value=0.3, min_gap=0.29, share=1.0)) == [("x", "y"), ("w", "z")]
    assert select_pairs(root, min_value=0.9) == []  # exceeded, not reached


def test_the_node_to_expand_is_drawn_by_the_softmax_of_values():
    """The root, of mean .2, and x, of value 1.2, which has a grandchild: e^1.2 / (e^1.2 + e^.2) = .731059."""
    root = grow(("", (0.2,), [("abcdefgh", (1.2,), [("u", (0.5,), [("p", (0.7,), [])])]), ("y", (9.0,), [])]))
    x = root.children[0]
    assert [choose_node(root, [], draw) for draw in (0.0, 0.7310, 0.7311, 0.9999)] == [x, x, root, root]
    assert choose_node(root, [root], 0.99) is x  # y has no grandchild
    assert choose_node(root, [root, x], 0.5) is root  # nothing is left
    similar = MessageNode(Message("abcdefgx", complete("")), root)
    assert choose_node(root, [similar], 0.0) is root  # x is nearly what was expanded
    assert choose_node(root, [], 0.99, count=1) is x


def test_nearly_the_same_messages_are_one_node():
    root = MessageNode()
    first = root.add(Message("abcdefghijk", complete("")))
    assert root.add(Message("abcdefghijx", complete(""))) is first  # 1 < .1 * 12
    assert root.add(Message("abcdefghi", complete(""))) is not first and len(root.children) == 2  # 2 > .1 * 10


@dataclass
class ByAnswer(Collector):
    """Rewards: 1 for the right answer, less a tenth for each message."""

    def score(self, episodes):
        for episode in episodes:
            episode.reward = float(episode.output == "7 5") - len(episode.turns) / 10


def test_a_tree_of_dialogues_gives_pairs_of_messages():
    """From the root `b7` twice and `a3`; the first dialogue is right in 3 messages (.7), the others wrong in 3 (-.3).
    So b7 has (.7 - .3) / 2 = .2 and a3 -.3; behind b7 stand =7 5 (.7) and =7 1 (-.3). The second expansion goes on
    from the best node with grandchildren, b7, of which every dialogue ends with =7 1 then: (.7 - .3 * 3) / 4."""
    views = {
        "a3 b7|b f|": ["b7", "b7", "a3"],
        "f5 c1|b f|b7": ["=7 5", "=7 1"],
        "f5 c1|b f|a3": ["=3 5"],
        "a3 b7|b f|b7/=7 5": ["=7 5"],
        "a3 b7|b f|b7/=7 1": ["=7 1"],
        "a3 b7|b f|a3/=3 5": ["=3 5"],
    }
    rollout = DialogueTree(**VIEW, expansions=1, width=3)
    rows = rollout.collect([(2, TASK[0])], context(Agents(views), collector=ByAnswer()))
    # one pair: b7 above a3 has a chosen value of .2, which .5 exceeds
    assert [(r.turns[0].completion.output, r.info["value"], r.group) for r in rows] == [
        ("=7 5", pytest.approx(0.7), 6), ("=7 1", pytest.approx(-0.3), 6),
    ]  # fmt: skip
    assert [float(r.turns[0].completion.extra["preference"]) for r in rows] == [1, -1]
    assert rows[0].info["counts"] == {"tree/pairs": 1, "dialogue/agreed": 3, "dialogue/open": 0}
    low = DialogueTree(**VIEW, expansions=2, width=2, min_value=-1, share=1.0)
    rows = low.collect([(0, TASK[0])], context(Agents({**views, "a3 b7|b f|": ["b7", "a3"]}), collector=ByAnswer()))
    # b7 (.7 alone, then .7 and -.3 twice) is expanded again; its children are =7 5 and =7 1
    assert [(r.turns[0].completion.output, round(r.info["value"], 6)) for r in rows] == [
        ("=7 5", 0.7), ("=7 1", -0.3), ("b7", 0.033333), ("a3", -0.3),
    ]  # fmt: skip
    assert [r.group for r in rows] == [0, 0, 1, 1]


def test_a_tree_without_a_pair_gives_a_row_without_a_preference():
    always = Agents({"a3 b7|b f|": ["=7 5"], "f5 c1|b f|=7 5": ["=7 5"]})
    (row,) = DialogueTree(**VIEW, expansions=2).collect([(0, TASK[0])], context(always, collector=ByAnswer()))
    assert float(row.turns[0].completion.extra["preference"]) == 0 and row.info["counts"]["tree/pairs"] == 0


def test_rows_of_a_tree_are_rewarded_with_their_values():
    rows = [Episode(TASK[0], 0, i, [Turn(complete("b7"))], info={"value": value}) for i, value in enumerate((0.7, 0.1))]
    reward = OptimaReward(readability_weight=0)
    Scorer(TASK, reward).score(rows)
    assert [row.reward for row in rows] == [0.7, 0.1]


def test_the_rounds_alternate_and_each_fit_begins_from_the_one_before():
    file = read_rounds(["optima"])
    steps = {step.name: step for step in list_steps(file)}
    fits = [(name, step.weights) for name, step in steps.items() if step.kind == "fit" and name[0] != "0"]
    assert fits == [
        ("1/sft-1", "0/agents"), ("1/second-1", "1/sft-1"), ("2/sft-1", "1/second-1"), ("2/second-1", "2/sft-1"),
    ]  # fmt: skip
    assert all(step.folders == ("0/language",) for name, step in steps.items() if name[0] != "0")


@pytest.mark.parametrize(
    ("baseline", "word"),
    [("no_tokens", "reward.token_weight=0.0"), ("no_readability", "reward.readability_weight=0.0"),
     ("no_dpo", "recipe=optima_sft")],
)  # fmt: skip
def test_a_baseline_changes_one_word_of_the_second_fit(baseline, word):
    arguments = read_rounds(["optima"]).values["baselines"][baseline]
    words, others = (
        {step.name: step for step in list_steps(read_rounds(["optima", *more]))}["1/second-1"].stage.overrides
        for more in ([], arguments)
    )
    assert [other for one, other in zip(words, others, strict=True) if one != other] == [word]
