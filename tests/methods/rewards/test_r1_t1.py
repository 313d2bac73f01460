"""R1-T1: thoughts of six templates, the reward of a format, and REINFORCE++'s advantages by hand."""

import pytest
import torch
from hydra.utils import instantiate
from torch.testing import assert_close

from mmrl.annotators.kl_penalty import KLPenalty
from mmrl.annotators.reward_streams import RewardStreams
from mmrl.core.batch import Batch
from mmrl.core.types import Context, Sampling
from mmrl.rewards.measures import chrf
from mmrl.rewards.scoring import score
from tasks.ciphers import Ciphers
from tasks.ciphers.thoughts import TEMPLATES, ThoughtCiphers
from tests.composed_words import compose_words
from tests.tasks.replies import reply

CTX = Context(None, None, None, Sampling(), seed=0, iteration=0)
TASK = ThoughtCiphers(count=200)


def advantages(rewards, kl=None, beta=0.1):
    """A of sequences of as many tokens as kl has, the reward on the last one."""
    kl = torch.zeros(len(rewards), 1) if kl is None else torch.tensor(kl)
    rows = len(rewards)
    batch = Batch(
        action_mask=torch.ones_like(kl).bool(),
        is_demo=torch.zeros(rows).bool(),
        behavior_logprobs=kl,
        ref_logprobs=torch.zeros_like(kl),
        reward=torch.tensor(rewards),
        episode=torch.arange(rows),
        step=torch.zeros(rows, dtype=torch.long),
        is_last=torch.ones(rows).bool(),
        bootstrap_value=torch.zeros(rows),
    )
    penalised = KLPenalty(beta, level="token")(batch, CTX)
    return RewardStreams(baseline=None, whiten=True)(penalised, CTX)["advantages"]


def test_returns_are_normalised_over_the_batch_with_the_population_std():
    # mean .2925, sum of squares .278256 + .094556 + .209306 + 1.670556 = 2.252675, std sqrt(2.252675 / 4) = .750446;
    # (.82 - .2925) / .750446 = .702916 and so on. With / 3 the std is .866540 and the first one .608743
    expected = torch.tensor([0.702916, 0.409756, 0.609638, -1.722310])
    assert_close(advantages([0.82, 0.60, 0.75, -1.0])[:, 0], expected, atol=1e-6, rtol=0)
    assert not torch.allclose(advantages([0.82, 0.60, 0.75, -1.0])[0], torch.tensor([0.608743]), atol=1e-2)
    assert (advantages([0.7] * 4) == 0).all()


def test_the_kl_penalty_of_later_tokens_flows_back_to_earlier_ones():
    # rewards per token -.1 * kl: [-.1, 0, -.2 + 1] and [0, .1, 0]; returns [.7, .8, .8] and [.1, .1, 0];
    # mean 2.5 / 6 = .416667, squares sum .49 + .64 + .64 + .01 + .01 = 1.79, variance 1.79 / 6 - .173611 = .124722
    out = advantages([1.0, 0.0], kl=[[1.0, 0.0, 2.0], [0.0, -1.0, 0.0]])
    returns = torch.tensor([[0.7, 0.8, 0.8], [0.1, 0.1, 0.0]])
    assert_close(out, (returns - 0.416667) / 0.353160, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("<think>x</think><answer>{answer}</answer>", 1.0),
        ("<answer>{answer}</answer>", -1.0),
        ("<think>x</think><answer>{answer}</answer> so", -1.0),
        ("<think>x</think><answer>3</answer>", -1.0),  # no word of a language
        ("<think>x</think>{answer}", -1.0),
    ],
)
def test_a_similarity_counts_in_the_right_format_alone(text, reward):
    plain = compose_words(("recipe=r1_t1",))
    one = reply(TASK[0], text.format(answer=TASK[0].answer))
    score([one], TASK, instantiate(plain.data.reward, _convert_="all"))
    assert one.reward == pytest.approx(reward)
    near = reply(TASK[0], f"<think></think><answer>{TASK[0].answer[:-1]}</answer>")
    score([near], TASK, instantiate(plain.data.reward, _convert_="all"))
    assert near.reward == pytest.approx(chrf(TASK[0].answer[:-1], TASK[0].answer)) and 0.5 < near.reward < 1


def test_thoughts_of_every_template_say_what_the_languages_say():
    task, words = ThoughtCiphers(), ("red", "fox", "sees")
    say = {language: [task.write(language, [word]) for word in words] for language in "ABC"}
    a, b = say["A"], say["B"]
    thoughts = {name: task.think(name, "BA", words, words) for name in TEMPLATES}
    assert thoughts["hierarchical"] == f"{b[2]}={a[2]} {b[1]}={a[1]} {b[0]}={a[0]}"  # B is written backwards
    assert thoughts["triangulating"] == f"C:{task.write('C', words)}"
    assert thoughts["back_translation"] == f"{' '.join(a)}>{' '.join(b[::-1])}"
    assert thoughts["context_aware"] == f"{b[2]} {b[1]}={a[2]} {a[1]} {b[1]} {b[0]}={a[1]} {a[0]}"
    assert thoughts["explanation"] == " ".join(x + y for x, y in dict(zip(b[2], a[2])).items())
    assert thoughts["structural"] == " ".join(b)
    assert task.think("structural", "AC", words, words) == " ".join(a)
    assert task.think("context_aware", "AC", ["red"], ["red"]) == f"{a[0]} {a[0]}={say['C'][0]} {say['C'][0]}"


def test_the_draft_with_the_best_translation_is_imitated():
    task = ThoughtCiphers(count=200, error=0.5)
    chosen = set()
    for index in range(60):
        (_, target), words = task.problem(index)
        reference = task.write(target, words)
        similar = {name: chrf(task.write(target, draft), reference) for name, draft in task.draft(index).items()}
        template, _ = task.choose_template(index)
        chosen.add(template)
        assert set(similar) == set(TEMPLATES) and similar[template] == max(similar.values())
        shown = task.score(reply(task[index], task.demonstrate(index)))
        assert shown["format"] == 1 and shown["chrf"] == pytest.approx(similar[template])
    assert chosen == set(TEMPLATES)
    right = ThoughtCiphers(count=200, error=0.0)
    assert right.score(reply(right[3], right.demonstrate(3)))["exact"] == 1
    assert right[3] == Ciphers(count=200, extract="tags")[3]


@pytest.mark.parametrize("options", [{"templates": ("guess",)}, {"templates": ()}, {"error": 1.0}])
def test_unknown_templates_and_drafts_that_are_never_right_are_refused(options):
    with pytest.raises(ValueError, match="templates must be of"):
        ThoughtCiphers(**options)
