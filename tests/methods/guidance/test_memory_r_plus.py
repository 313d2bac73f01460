"""Intrinsic rewards from memories: the numbers by hand, what is stored and read, and embeddings of texts."""

import pytest
import torch
from hydra.utils import instantiate
from torch.nn.functional import cosine_similarity
from torch.testing import assert_close

from mmrl.core.types import Collector, Completion, Context, Episode, Prompt, Sampling, Turn
from mmrl.data.states import is_equal
from mmrl.methods.guidance.memory_r_plus import (
    EpisodicMemory,
    MemoryReward,
    exploit_reward,
    explore_reward,
    scale_by_window,
)
from mmrl.policies.text.policy import TextPolicy
from mmrl.transforms.text_embedding import EMPTY, embed_texts, prompt_text
from tasks.arithmetic import Arithmetic
from tests.composed_words import compose_words
from tests.policies.text.oracle import TINY, decided

TASK = Arithmetic()
ANSWERS = torch.tensor([[0.6, 0.8], [-0.8, 0.6]])
SUCCESSES, FAILURES = torch.eye(2), torch.tensor([[-1.0, 0.0]])


def test_rewards_by_hand():
    """Mean success (.5, .5): distances sqrt(.01 + .09) and sqrt(1.69 + .01); cosines to the failure -.6 and .8."""
    exploit, explore = exploit_reward(ANSWERS, SUCCESSES), explore_reward(ANSWERS, FAILURES)
    assert_close(exploit, -torch.tensor([0.1, 1.7]).sqrt())  # -.3162, -1.3038
    assert_close(explore, torch.tensor([1.6, 0.2]))
    assert_close(explore_reward(2 * ANSWERS, torch.tensor([[-1.0, 0.0], [0.0, 3.0]])), torch.tensor([0.2, 0.2]))
    assert scale_by_window(exploit.tolist(), [], 100) == pytest.approx([1, 0])
    assert scale_by_window(explore.tolist(), [], 100) == pytest.approx([1, 0])


def test_the_window_slides():
    window = [9.0, 0.0, 4.0]
    assert scale_by_window([2.0, 3.0], window, 4) == pytest.approx([0.5, 0.75])  # of 0, 4, 2, 3
    assert window == [0.0, 4.0, 2.0, 3.0]
    assert scale_by_window([5.0, 5.0, 5.0], window, 2) == [0.0, 0.0, 0.0]  # a window of equal values
    assert window == [5.0, 5.0, 5.0]
    assert scale_by_window([6.0], window, 2) == pytest.approx([1.0]) and window == [5.0, 6.0]


def test_the_answers_of_the_nearest_prompts_are_read_and_the_oldest_forgotten():
    memory, (x, y) = EpisodicMemory(), torch.eye(2)
    assert memory.read(x, 3).shape == (0, 2)
    memory.write("a", x, torch.tensor([[1.0, 1.0], [2.0, 2.0]]), 2, 3)
    memory.write("b", y, torch.tensor([[3.0, 3.0]]), 2, 3)
    memory.write("none", y, torch.zeros(0, 2), 2, 3)
    assert memory.read(torch.tensor([0.9, 0.1]), 1)[:, 0].tolist() == [1, 2]
    assert memory.read(torch.tensor([0.1, 0.9]), 1)[:, 0].tolist() == [3]
    assert memory.read(torch.tensor([0.1, 0.9]), 5)[:, 0].tolist() == [3, 1, 2]
    memory.write("a", x, torch.tensor([[4.0, 4.0], [5.0, 5.0]]), 2, 3)
    assert memory.read(x, 1)[:, 0].tolist() == [2, 4, 5]  # at most 3 answers
    memory.write("c", -x, torch.tensor([[6.0, 6.0]]), 2, 3)
    assert list(memory.entries) == ["b", "c"]  # at most 2 prompts


@pytest.fixture(scope="module")
def encoder():
    torch.manual_seed(0)
    return decided(TextPolicy(config=TINY, hidden_layers=[0.5, 1.0])).eval()


def test_an_embedding_is_the_mean_of_the_states_after_each_token(encoder):
    texts = ["17", "", "123+4", "17"]
    embedded = embed_texts(texts, encoder, rows=3)
    assert embedded.shape == (4, 2 * encoder.hidden_size) and not embedded.requires_grad
    before = encoder.encode(EMPTY)["input_ids"]
    for text, found in zip(texts, embedded):
        ids = torch.cat([before, encoder.tokenize(text)])[None]
        with torch.no_grad():
            states = encoder.model(input_ids=ids, output_hidden_states=True).hidden_states
        first = min(len(before), ids.shape[1] - 1)
        expected = torch.cat([states[k][0, first:].mean(0) for k in (1, 2)])
        assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert embed_texts([], encoder).shape == (0, 2 * encoder.hidden_size)
    with pytest.raises(ValueError, match="hidden_layers"):
        embed_texts(["1"], TextPolicy(config=TINY))


def test_the_text_of_a_prompt_has_the_text_of_all_parts():
    parts = [{"type": "image"}, {"type": "text", "text": "How "}, {"type": "text", "text": "many?"}]
    messages = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": parts})
    assert prompt_text(Prompt("t/train/0", messages)) == "Be brief.\nHow many?"


def episodes(*groups, first=0):
    """A group of each problem from `first` on, of (output, reward) pairs."""
    empty = torch.zeros(0)

    def turn(output):
        return Turn(Completion({}, empty.long(), empty, empty.bool(), output))

    return [
        Episode(TASK[first + slot], slot, k, [turn(output)], reward=reward)
        for slot, group in enumerate(groups)
        for k, (output, reward) in enumerate(group)
    ]


def context(encoder, collector=None, **kwargs):
    models = {"reference": encoder}
    return Context(TASK, None, None, Sampling(), 0, 0, models=models, collector=collector or Collector(), **kwargs)


def rewards(done):
    return [episode.reward for episode in done]


def test_rewards_are_added_from_the_second_iteration_on(encoder):
    part, ctx = MemoryReward(exploit_coef=0.5, explore_coef=2.0), context(encoder)
    assert rewards(part(episodes([("12", 1.0), ("97", 0.0), ("abc", 0.5)]), ctx)) == [1, 0, 0.5]  # nothing is known
    success, fail, other = embed_texts(["12", "97", "abc"], encoder)
    assert_close(part._memories[0].read(success, 1), success[None], rtol=1e-4, atol=1e-4)
    assert_close(part._memories[1].read(success, 1), torch.stack([fail, other]), rtol=1e-4, atol=1e-4)
    done = part(episodes([("12", 1.0), ("97", 0.0), ("13", 0.0)]), ctx)
    assert done[0].scores["exploit"] == pytest.approx(1) and done[1].scores["explore"] == pytest.approx(0, abs=1e-3)
    cosines = cosine_similarity(embed_texts(["12", "97", "13"], encoder)[:, None], torch.stack([fail, other]), dim=2)
    novel = 1 - cosines.amax(1)
    assert [e.scores["explore"] for e in done] == pytest.approx(
        ((novel - novel.min()) / (novel.max() - novel.min())).tolist(), abs=1e-3
    )
    for episode, task_reward in zip(done, (1.0, 0.0, 0.0)):
        expected = task_reward + 0.5 * episode.scores["exploit"] + 2.0 * episode.scores["explore"]
        assert episode.reward == pytest.approx(expected)


def test_memory_r_has_no_exploration(encoder):
    part, ctx = MemoryReward(explore_coef=0.0), context(encoder)
    part(episodes([("12", 0.0), ("97", 0.0)]), ctx)
    assert rewards(part(episodes([("12", 1.0), ("97", 0.0)]), ctx)) == [1, 0]  # no success is known
    assert rewards(part(episodes([("12", 1.0), ("97", 0.0)]), ctx)) == pytest.approx([2, 0])


def test_a_saved_state_goes_on_alike(encoder):
    part, again, ctx = MemoryReward(max_answers=3), MemoryReward(max_answers=3), context(encoder)
    part(episodes([("12", 1.0), ("97", 0.0)], [("5", 1.0), ("6", 1.0)]), ctx)
    part(episodes([("12", 1.0), ("97", 0.0)], [("5", 1.0), ("7", 0.0)]), ctx)
    again.load_state_dict(part.state_dict())
    later = [("13", 0.0), ("99", 0.0), ("12", 1.0)]
    assert rewards(part(episodes(later, first=1), ctx)) == rewards(again(episodes(later, first=1), ctx))
    assert is_equal(part.state_dict(), again.state_dict()) and len(part.state_dict()["windows"][0]) > 4


class OtherRank(Collector):
    """Gathers the items of another process before those of this one."""

    def __init__(self, others):
        self.others = others

    def gather(self, items):
        return [*self.others, *items]


class Spy(Collector):
    def gather(self, items):
        self.items = list(items)
        return list(items)


def test_two_processes_have_one_memory(encoder):
    groups = [[("12", 1.0), ("97", 0.0)], [("5", 1.0), ("6", 0.0)]]
    whole, whole_ctx = MemoryReward(), context(encoder)
    part = MemoryReward()
    for _ in range(2):
        expected = rewards(whole(episodes(*groups), whole_ctx))
        spy = Spy()
        MemoryReward()(episodes(*groups)[2:], context(encoder, spy))  # what the process of the second group sends
        found = rewards(part(episodes(*groups)[:2], context(encoder, OtherRank(spy.items))))
        assert found == pytest.approx(expected[:2], abs=1e-4)
    assert [list(memory.entries) for memory in part._memories] == [list(m.entries) for m in whole._memories]


def test_refusals(encoder):
    for name in ("neighbours", "max_answers", "max_prompts", "window", "rows"):
        with pytest.raises(ValueError, match=f"memory_reward.{name}"):
            MemoryReward(**{name: 0})
    with pytest.raises(ValueError, match=r"encoder='sentences'.*frozen_models"):
        MemoryReward(encoder="sentences")(episodes([("1", 1.0)]), context(encoder))


def test_the_memories_of_the_recipe_hold_all_its_problems_and_each_comes_back():
    plain = compose_words(("recipe=memory_r_plus",))
    problems = len(instantiate(plain.data.task, _convert_="all"))
    memory = instantiate(plain.data.transforms.memory, explore_coef=1.0)
    assert memory.max_prompts >= problems
    assert plain.trainer.max_epochs * plain.data.num_prompts >= 5 * problems
