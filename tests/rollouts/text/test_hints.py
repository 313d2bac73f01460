"""Hints in prompts: which characters, how often, and what the other rollout gets."""

import pytest

from mmrl.core.types import Context, Prompt, Sampling
from mmrl.rollouts.offline.demonstrations import Demonstrations
from mmrl.rollouts.text.hints import HintedPrompts, add_hint
from mmrl.rollouts.text.single_turn import SingleTurn
from tasks.arithmetic import Arithmetic

TASK = Arithmetic(digits=(1, 1, 1, 1), steps=True)


def hinted(rollout, iteration=0, slots=range(200)):
    ctx = Context(TASK, None, None, Sampling(), seed=0, iteration=iteration)
    return {slot: rollout.hint(slot, TASK[slot], ctx) for slot in slots}


def test_the_first_characters_stand_in_the_users_message():
    # 16 characters: a quarter is 4, a half 8, three quarters 12
    prompt = Prompt("toy/train/3", ({"role": "user", "content": "q"},), answer=7)
    shown = [add_hint(prompt, "abcdefghijklmnop", f, "|").messages[-1]["content"] for f in (0.25, 0.5, 0.75)]
    assert shown == ["q|abcd", "q|abcdefgh", "q|abcdefghijkl"]
    assert add_hint(prompt, "abcdefghijklmnop", 0.0) is prompt and add_hint(prompt, "a", 0.25) is prompt
    whole = add_hint(prompt, "ab", 1.0, "|")
    assert (whole.index, whole.answer, whole.info) == (3, 7, {"hint": 1.0})
    parts = Prompt("toy/train/0", ({"role": "user", "content": [{"type": "image"}]},))
    assert add_hint(parts, "ab", 0.5, "|").messages[0]["content"] == [{"type": "image"}, {"type": "text", "text": "|a"}]
    with pytest.raises(ValueError, match="user's message"):
        add_hint(Prompt("toy/train/0", ({"role": "system", "content": "q"},)), "ab", 1.0)


def test_fractions_are_drawn_alike_for_every_prompt():
    prompts = hinted(HintedPrompts(SingleTurn(), (0.0, 0.25, 0.5, 0.75, 1.0)))
    counts = [sum(p.info.get("hint", 0.0) == f for p in prompts.values()) for f in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert sum(counts) == 200 and min(counts) > 20
    assert prompts != hinted(HintedPrompts(SingleTurn(), (0.0, 0.25, 0.5, 0.75, 1.0)), iteration=1)
    alone = hinted(HintedPrompts(SingleTurn(), (0.0, 0.25, 0.5, 0.75, 1.0)), slots=[5])
    assert alone[5] == prompts[5]  # whatever other prompts there are


@pytest.mark.parametrize("probability, low, high", [(0.0, 0, 0), (0.5, 75, 125), (1.0, 200, 200)])
def test_the_probability_of_a_hint(probability, low, high):
    prompts = hinted(HintedPrompts(SingleTurn(), (0.5,), probability))
    assert low <= sum("hint" in prompt.info for prompt in prompts.values()) <= high


def test_the_other_rollout_plays_them():
    class Plays(SingleTurn):
        def collect(self, prompts, ctx):
            return prompts

    ctx = Context(TASK, None, None, Sampling(), seed=0, iteration=0)
    ((slot, prompt),) = HintedPrompts(Plays(), (1.0,), instruction="|").collect([(4, TASK[4])], ctx)
    solution = TASK.demonstrate(4)
    assert slot == 4 and prompt.messages[-1]["content"] == f"{TASK[4].messages[-1]['content']}|{solution}"
    assert HintedPrompts(SingleTurn()).samples and not HintedPrompts(Demonstrations()).samples


def test_refusals():
    with pytest.raises(ValueError, match="probability"):
        HintedPrompts(SingleTurn(), probability=2.0)
    with pytest.raises(ValueError, match=r"rollout\.fractions"):
        HintedPrompts(SingleTurn(), fractions=())
    with pytest.raises(ValueError, match="cache_episodes"):
        HintedPrompts(Demonstrations(cache_episodes=True))
