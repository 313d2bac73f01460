"""Hunyuan-MT: drafts in prompts, the parts of its reward by hand, and a start that reads drafts."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from mmrl.core.types import Completion, Context, Prompt, Sampling
from mmrl.methods.rewards.hunyuan_mt import (
    DraftDemonstrations,
    DraftThenFuse,
    add_drafts,
    corrupt,
    judge,
    repetition,
    terms,
)
from mmrl.policies.text.policy import TextPolicy
from tasks.ciphers import Ciphers
from tests.policies.text.oracle import TINY

TASK = Ciphers(words=(2, 3), count=100)
PROMPT = Prompt("ciphers/train/0", ({"role": "user", "content": "A>B: x"},), answer="iwl ypjzz", info={"task": "AB"})


@dataclass
class Engine:
    """Notes requests and samplings; a draft is a number, an answer is `done`."""

    drafts: list[str] | None = None
    asked: list = field(default_factory=list)

    def sample(self, requests, sampling):
        self.asked.append((requests, sampling))
        zero = torch.zeros(1)
        if requests[0].model is None:
            texts = ["done"] * len(requests)
        else:
            texts = [self.drafts[len(self.asked) - 1] if self.drafts else f"{len(self.asked)}"] * len(requests)
        return [Completion({}, zero.long(), zero, zero.bool(), text) for text in texts]


def collect(engine, rollout, prompts, **options):
    ctx = Context(TASK, engine, None, Sampling(max_tokens=7, top_p=0.9), seed=0, iteration=0, group_size=2, **options)
    return rollout.collect(prompts, ctx)


def test_the_reward_by_hand():
    # 7 trigrams of "a b c a b c a b c", 3 of them distinct: 1 - 3 / 7 = .571429
    assert repetition("a b c a b c a b c") == pytest.approx(-0.571429, abs=1e-6)
    assert repetition("a b") == repetition("") == 0 and repetition("a b c d") == 0
    # terms are iwlq and ypjzz; one of two is there
    assert terms("ypjzz tsg", "iwlq ypjzz tsg") == 0.5 and terms("x", "iwl tsg") == 1.0
    assert terms("ypjzz ypjzz iwlq", "iwlq ypjzz") == 1.0 and terms("", "iwlq") == 0.0
    # of three words the first is right: number and first word, 2 of 3
    assert judge("iwl a b", "iwl ypjzz tsg") == pytest.approx(2 / 3)
    assert judge("iwl ypjzz tsg", "iwl ypjzz tsg") == 1 and judge("", "iwl") == 0 and judge("a b", "iwl") == 0
    assert judge("iwl", "") == 0  # without a reference nothing is right


def test_drafts_stand_behind_the_question_a_line_each():
    shown = add_drafts(PROMPT, ["iwl", " a \n b "])
    assert shown.messages[0]["content"] == "A>B: x\n~iwl\n~a b\n"
    assert shown.info["drafts"] == ["iwl", "a b"] and shown.info["task"] == "AB"
    assert (shown.key, shown.answer) == (PROMPT.key, PROMPT.answer) and PROMPT.messages[0]["content"] == "A>B: x"
    lengths = {len(add_drafts(PROMPT, [text] * 6).messages[0]["content"]) for text in ("abc", "xyz")}
    assert lengths == {len("A>B: x\n") + 6 * len("~abc\n")}  # equal drafts are all shown
    assert add_drafts(PROMPT, ["", ""]).messages[0]["content"] == "A>B: x\n~\n~\n"


def test_a_group_reads_one_draft_of_each_temperature():
    engine = Engine()
    episodes = collect(engine, DraftThenFuse(temperatures=(0.5, 1.0, 1.5)), [(3, TASK[3]), (4, TASK[4])])
    *drafting, (fused, sampling) = engine.asked
    assert [each.temperature for _, each in drafting] == [0.5, 1.0, 1.5]
    assert all(each.top_p == 0.9 and each.max_tokens == 7 for _, each in drafting) and sampling.temperature == 1.0
    assert all(request.model == "drafter" for requests, _ in drafting for request in requests)
    assert len({request.seed for requests, _ in drafting for request in requests}) == 6
    assert [request.observation["messages"] for request in drafting[0][0]] == [TASK[3].messages, TASK[4].messages]
    expected = TASK[3].messages[0]["content"] + "\n~1\n~2\n~3\n"
    assert [request.observation["messages"][0]["content"] for request in fused[:2]] == [expected] * 2
    assert len({request.prompt_id for request in fused}) == 2 and {request.model for request in fused} == {None}
    assert [(e.group, e.sample_index, e.output) for e in episodes] == [
        (3, 0, "done"),
        (3, 1, "done"),
        (4, 0, "done"),
        (4, 1, "done"),
    ]
    assert TASK.score(episodes[0])["exact"] == 0 and episodes[0].prompt.answer == TASK[3].answer


def test_equal_drafts_are_no_special_case():
    episodes = collect(Engine(["same"] * 6), DraftThenFuse(), [(0, TASK[0])])
    assert episodes[0].prompt.info["drafts"] == ["same"] * 6
    assert DraftThenFuse().sampled_models() == {"drafter"}


def test_a_start_reads_drafts_with_wrong_words():
    torch.manual_seed(0)
    policy = TextPolicy(config=TINY)
    prompts = [(slot, TASK[slot]) for slot in range(20)]
    ctx = Context(TASK, None, policy, Sampling(), seed=0, iteration=0)
    episodes = DraftDemonstrations(drafts=3, error=0.5).collect(prompts, ctx)
    words = {word for _, prompt in prompts for word in prompt.answer.split()}
    right = 0
    for episode, (_, prompt) in zip(episodes, prompts):
        done, drafts = episode.turns[0].completion, episode.prompt.info["drafts"]
        assert done.output == prompt.answer and policy.decode(done.action.tolist()).startswith(prompt.answer)
        assert policy.decode(done.observation["input_ids"].tolist()).endswith(f"~{drafts[-1]}\n")
        assert len(drafts) == 3 and all(set(draft.split()) <= words for draft in drafts)
        pairs = [pair for draft in drafts for pair in zip(draft.split(), prompt.answer.split(), strict=True)]
        right += sum(a == b for a, b in pairs) / len(pairs)
    assert 0.4 < right / 20 < 0.7  # half of the words, and those that are drawn right
    assert corrupt("a b c", ["x"], 0.0, np.random.default_rng(0)) == "a b c"
    assert corrupt("a b c", ["x"], 1.0, np.random.default_rng(0)) == "x x x"


def test_no_drafts_are_refused():
    with pytest.raises(ValueError, match="one a draft"):
        DraftThenFuse(temperatures=())
    with pytest.raises(ValueError, match="drafts must be at least 1"):
        DraftDemonstrations(drafts=0)
