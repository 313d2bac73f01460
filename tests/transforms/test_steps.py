"""Step rewards are at the token that ends each step."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.step_advantage import StepAdvantage
from mmrl.core.batch import Batch
from mmrl.ops.advantage import step_advantage
from mmrl.policies.text.language_model import LanguageModelPolicy
from mmrl.transforms.steps import StepRewards, fit_texts, locate_steps
from tests.laws.example import NoSteps

LAWS = [lambda: StepRewards(NoSteps())]


@pytest.mark.parametrize(
    ("tokens", "steps", "segment"),
    [
        (["a", "\n", "b", ""], ["a\n", "b"], [0, 0, 1, 1]),
        (["a\nb", "c"], ["a\n", "bc"], [1, 1]),  # a token of two steps belongs to the later one
        (["", "a"], ["a"], [0, 0]),
        ([""], [""], [0]),
        ([], [""], []),
    ],
)
def test_a_token_belongs_to_the_step_of_its_last_character(tokens, steps, segment):
    assert locate_steps(tokens, steps).tolist() == segment


TEXT = "Let a ≤ b²\nSo a → c\ndone"


@pytest.mark.parametrize("kind", ["blank before words", "bytes"])
def test_rewards_stand_at_the_ends_of_steps_whatever_the_tokenizer(kind):
    """A token alone has no blank before it, or only a part of a character: its text is that behind another token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE(unk_token="<unk>"))
    trainer = {"special_tokens": ["<unk>", "<eos>"], "show_progress": False}
    if kind == "bytes":
        made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(False), decoders.ByteLevel()
        trainer["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
        corpus = ["Let a So a done"]
    else:
        made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        corpus = [TEXT]
    made.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=300, **trainer))

    class Policy:
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", eos_token="<eos>")
        decode, token_texts = LanguageModelPolicy.decode, LanguageModelPolicy.token_texts
        _token_text = LanguageModelPolicy._token_text

    policy = Policy()
    ids = [*policy.tokenizer.encode(TEXT, add_special_tokens=False), policy.tokenizer.eos_token_id]
    assert policy.decode(ids) == TEXT
    parts = fit_texts(policy.token_texts(ids), TEXT)
    assert "".join(parts) == TEXT and parts[-1] == ""
    for count in range(1, len(ids) + 1):
        if "\ufffd" not in (text := policy.decode(ids[:count])):
            assert "".join(parts[:count]) == text
    assert sum(policy.decode([token]) == part for token, part in zip(ids, parts)) < len(ids) - 2  # tokens alone differ


def columns():
    reward = torch.tensor([[0.0, 0.5, 1.0], [0.0, 0.0, 0.0], [3.0, 3.0, 0.0]])
    segment = torch.tensor([[0, 0, 1], [0, 0, 0], [0, 1, -1]])
    mask = torch.tensor([[True, True, True], [True, True, True], [True, True, False]])
    return reward, segment, torch.tensor([4, 4, 7]), mask


def test_normalised_step_rewards_to_go():
    reward, segment, group, mask = columns()
    ends = torch.tensor([0.5, 1.0, 0.0])  # the steps of group 4
    unit = (ends - ends.mean()) / (ends.std(correction=0) + 1e-4)
    wanted = torch.tensor([[unit[0] + unit[1]] * 2 + [unit[1]], [unit[2]] * 3, [0.0] * 3])
    assert_close(step_advantage(reward, segment, group, mask), wanted)


def test_without_normalisation_the_group_s_mean_return_is_the_baseline():
    reward, segment, group, mask = columns()
    wanted = torch.tensor([[0.75, 0.75, 0.25], [-0.75] * 3, [0.0, -3.0, 0.0]])
    assert_close(step_advantage(reward, segment, group, mask, normalise=False), wanted)


def test_the_annotator_adds_to_the_outcome_s_advantages():
    reward, segment, group, mask = columns()
    batch = Batch(advantages=mask.float(), token_rewards=reward, segment=segment, group=group, action_mask=mask)
    out = StepAdvantage(weight=2.0, normalise=False)(batch, None)["advantages"]
    assert_close(out, mask.float() + 2 * step_advantage(reward, segment, group, mask, normalise=False))
