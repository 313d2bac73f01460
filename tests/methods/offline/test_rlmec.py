"""RLMEC: which tokens were edited, the editor's data and rows, token rewards and losses by hand."""

import string
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.logprobs import Logprobs
from mmrl.core.batch import Batch
from mmrl.core.types import Context, Episode, PolicyOutput, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.offline.rlmec.corrections import AddCorrections, edited_tokens
from mmrl.methods.offline.rlmec.editor import EditDemonstrations, edit_observation, references
from mmrl.methods.offline.rlmec.losses import EditImitation, EditRewards, EditSurrogate
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.text.single_turn import SingleTurn
from tasks.arithmetic import Arithmetic
from tests.laws.example import Example
from tests.policies.text.oracle import TINY, decided

LAWS = [
    Example(EditSurrogate()),
    Example(EditSurrogate(0.1, old="old_logprobs")),
]


class SilentGuess(Arithmetic):
    def guess(self, prompt, rng):
        return ""


TASK = Arithmetic(digits=(1, 1, 1), steps=True)
ALL = torch.ones(1, 3, dtype=torch.bool)
ENDS = string.ascii_lowercase + string.digits
"""Characters with which answers end, so that those of random policies do."""


@pytest.mark.parametrize(
    "before, after, expected",
    [
        ("7 13 18", "7 12 18", "...x..."),
        ("kitten", "sitting", "x...x.x"),  # two replaced, one inserted: distance 3
        ("abc", "abxc", "..x."),
        ("abxc", "abc", "..."),  # a removal leaves no edited token
        ("", "ab", "xx"),
        ("ab", "", ""),
        ("a", "aa", "x."),  # the last one is kept
        ("ab", "ba", "xx"),  # two replaced, not one removed and one inserted
    ],
)
def test_edited_tokens(before, after, expected):
    assert "".join(".x"[edited] for edited in edited_tokens(before, after)) == expected


def test_token_rewards_by_hand():
    """p - .5 = .4, 0, -.05, -.4: between -.1 and 0 in a wrong answer, between 0 and .5 in a right one."""
    p = torch.tensor([[0.9, 0.5, 0.45, 0.1]])
    batch = Batch(
        reward_logprobs=p.log().repeat(2, 1),
        episode_reward=torch.tensor([0.5, 1.0]),
        action_mask=torch.ones(2, 4, dtype=torch.bool),
    )
    expected = torch.tensor([[0.0, 0.0, -0.05, -0.1], [0.4, 0.0, 0.0, 0.0]])
    assert_close(EditRewards()(batch, None)["token_rewards"], expected)
    outside = batch.with_columns(action_mask=torch.tensor([[True, True, False, True]]).repeat(2, 1))
    assert_close(EditRewards(0.3, 0.2, 0.5)(outside, None)["token_rewards"][0], torch.tensor([0.3, 0, 0, 0]))


@pytest.mark.parametrize(
    "rewards, weights, expected",
    [
        # ratios 1.25, .5, 1.6, clipped to 1.25, .7, 1.3: min(-.05, -.07) and min(-.08, -.065)
        ([0.0, -0.1, -0.05], [0.0, -0.07, -0.08], -0.065256),  # -(.07 * 1.609438 + .08 * .223144) / 2
        ([0.3, 0.1, 0.2], [0.375, 0.05, 0.26], 0.132807),  # (.375 * .693147 + .05 * 1.609438 + .26 * .223144) / 3
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], 0.0),
    ],
)
def test_the_policy_loss_by_hand(rewards, weights, expected):
    logprobs = torch.tensor([[0.5, 0.2, 0.8]]).log().requires_grad_()
    old = torch.tensor([[0.4, 0.4, 0.5]]).log()
    batch = Batch(action_mask=ALL, token_rewards=torch.tensor([rewards]), behavior_logprobs=old)
    loss = EditSurrogate()(PolicyOutput(logprobs, logprobs), batch)
    assert_close(loss, torch.tensor([expected]), rtol=0, atol=1e-6)
    loss.sum().backward()  # the weights have no gradient
    assert_close(logprobs.grad, -torch.tensor([weights]) / max(sum(r != 0 for r in rewards), 1))


def test_the_regulariser_by_hand():
    # (1.0 ln 2 + .5 ln 4) / 2 = ln 2, whatever the token of weight 0 is
    logprobs = torch.tensor([[0.5, 0.01, 0.25]]).log()
    batch = Batch(action_mask=ALL, imitation_weights=torch.tensor([[1.0, 0.0, 0.5]]))
    assert_close(EditImitation()(PolicyOutput(logprobs, logprobs), batch), torch.tensor([2.0]).log())
    none = batch.with_columns(imitation_weights=torch.zeros(1, 3))
    assert EditImitation()(PolicyOutput(logprobs, logprobs), none).tolist() == [0]


def test_what_was_not_chosen_does_not_count():
    """The second and third lines of the policy's loss above, and the regulariser, with a token outside the mask."""
    mask, nan = torch.tensor([[True, False, True]]), torch.nan
    logprobs = torch.tensor([[0.5, nan, 0.8]]).log().requires_grad_()
    batch = Batch(
        action_mask=mask,
        token_rewards=torch.tensor([[0.3, 9.0, 0.2]]),
        behavior_logprobs=torch.tensor([[0.4, nan, 0.5]]).log(),
        imitation_weights=torch.tensor([[1.0, 9.0, 0.5]]),
    )
    out = PolicyOutput(logprobs, logprobs)
    loss = EditSurrogate()(out, batch)  # (.375 * .693147 + .26 * .223144) / 2
    assert_close(loss, torch.tensor([0.158974]), rtol=0, atol=1e-6)
    loss.sum().backward()
    assert_close(logprobs.grad, torch.tensor([[-0.1875, 0.0, -0.13]]))
    # (1.0 * .693147 + .5 * .223144) / 2
    assert_close(EditImitation()(out, batch), torch.tensor([0.402359]), rtol=0, atol=1e-6)


def test_what_the_editor_reads():
    raw = {"messages": ({"role": "user", "content": "1+2="},), "images": ()}
    assert edit_observation(raw, "3", "4", "|{reference}|{answer}|")["messages"][0]["content"] == "1+2=|3|4|"
    parts = [{"type": "image"}, {"type": "text", "text": "How many?"}]
    seen = edit_observation({"messages": ({"role": "user", "content": parts},)}, "3", "4", "|{reference}|{answer}|")
    assert seen["messages"][0]["content"] == [*parts, {"type": "text", "text": "|3|4|"}]


@pytest.fixture(scope="module")
def policies():
    torch.manual_seed(0)
    return decided(TextPolicy(config=TINY)).eval(), decided(TextPolicy(config=TINY)).eval()


def context(policies, max_tokens=6):
    policy, editor = policies
    engine = LocalEngine()
    engine.load_models({"editor": editor})
    engine.sync(policy, 0)
    sampling = Sampling(max_tokens=max_tokens, stop=list(ENDS))
    return Context(TASK, engine, policy, sampling, 0, 0, group_size=4, models={"editor": editor})


def test_demonstrations_for_the_editor(policies):
    ctx = context(policies)
    prompts = [(slot, TASK[slot]) for slot in range(100)]
    right = references([prompt for _, prompt in prompts], ctx)
    wrong, replacements = 0, set()
    for rate in (0.0, 0.2):
        episodes = EditDemonstrations(rate, "|{reference}|{answer}|").collect(prompts, ctx)
        assert [e.output for e in episodes] == right and {e.source for e in episodes} == {"demo"}
        for episode, output in zip(episodes, right):
            ids = episode.turns[0].completion.observation["input_ids"].tolist()
            question, reference, answer, end = ctx.policy.decode(ids).split("|")
            assert reference == output and len(answer) == len(output) and not end
            assert question == episode.prompt.messages[0]["content"]
            wrong += answer != output
            replacements |= {new for new, old in zip(answer, output) if new != old}
            assert rate or answer == output
    assert 30 <= wrong <= 80  # of 3 to 5 characters each is replaced with probability .2, sometimes by itself
    assert len(replacements) > 3  # characters of answers to other problems, or blanks where those are empty
    silent = replace(ctx, task=SilentGuess(digits=(1, 1, 1), steps=True))
    answers = [
        e.turns[0].completion for e in EditDemonstrations(1.0, "|{reference}|{answer}|").collect(prompts, silent)
    ]
    decoded = [ctx.policy.decode(done.observation["input_ids"].tolist()).split("|")[2] for done in answers]
    assert all(answer and not answer.strip() for answer in decoded)
    with pytest.raises(ValueError, match="error_rate"):
        EditDemonstrations(1.5)


def sampled(ctx):
    """Four answers to each of 20 problems; the even ones are right."""
    episodes = SingleTurn().collect([(slot, TASK[slot]) for slot in range(20)], ctx)
    return [replace(episode, reward=float(episode.sample_index % 2 == 0)) for episode in episodes]


def weights(episode):
    return episode.turns[0].completion.extra["imitation_weights"].tolist()


def test_wrong_answers_are_corrected_by_the_editor(policies):
    ctx, part = context(policies), AddCorrections()
    before = sampled(ctx)
    forced = before[0].turns[0].completion  # its last token was not chosen, so it is not imitated
    chosen = torch.arange(len(forced.action)) < len(forced.action) - 1
    before[0] = replace(before[0], turns=[replace(before[0].turns[0], completion=replace(forced, action_mask=chosen))])
    done = part(list(before), ctx)
    own, added = done[: len(before)], done[len(before) :]
    assert [e.output for e in own] == [e.output for e in before]
    for episode in own:
        mask = episode.turns[0].completion.action_mask.tolist()
        assert weights(episode) == [0.5 * episode.reward * inside for inside in mask]
    assert 5 <= len(added) < 40 and {e.source for e in added} == {"demo"}  # a correction that does not end is left out
    assert len({(e.group, e.sample_index) for e in done}) == len(done)
    of = {(e.group, e.sample_index): e for e in own}
    for episode in added:
        ids = episode.turns[0].completion.action.tolist()
        assert len(ids) < 6 or ids[-1] == ctx.policy.tokenizer.eos_token_id or ctx.policy.decode(ids)[-1] in ENDS
        wrong = of[episode.group, episode.sample_index - 4]
        raw = edit_observation(
            wrong.prompt.observation, TASK.demonstrate(episode.prompt.index), wrong.output, part.template
        )
        assert not wrong.reward and weights(episode) == [
            1.0 if edited else 0.5
            for edited in edited_tokens(
                wrong.turns[0].completion.action.tolist(), episode.turns[0].completion.action.tolist()
            )
        ]
        seen = episode.turns[0].completion.others["edit"]["input_ids"]
        assert torch.equal(seen, ctx.policy.encode(raw)["input_ids"])


def test_the_editor_scores_every_answer_in_its_own_context(policies):
    ctx = context(policies)
    done = AddCorrections()(sampled(ctx), ctx)
    batch = collate(done, ctx.policy)
    scored = Logprobs(column="reward_logprobs", model="editor", context="edit", rows=64)(batch, ctx)
    editor = ctx.models["editor"]
    for row in (0, 1, 2, 3, len(done) - 1):
        completion = done[row].turns[0].completion
        ids = torch.cat([completion.others["edit"]["input_ids"], completion.action])[None]
        length = len(completion.action)
        with torch.no_grad():
            logits = editor.model(input_ids=ids).logits[0, -length - 1 : -1]
        expected = logits.log_softmax(-1).gather(1, completion.action[:, None])[:, 0]
        assert_close(scored["reward_logprobs"][row, :length], expected, rtol=1e-3, atol=1e-3)
    assert batch["is_demo"].tolist() == [e.source == "demo" for e in done]


def test_greedy_corrections_are_the_editors(policies):
    """A correction is the most likely completion: every token of it is the argmax of the editor."""
    ctx = context(policies)
    done = AddCorrections()(sampled(ctx), ctx)[-1].turns[0].completion
    ids = torch.cat([done.others["edit"]["input_ids"], done.action])[None]
    with torch.no_grad():
        logits = ctx.models["editor"].model(input_ids=ids).logits[0, -len(done.action) - 1 : -1]
    assert logits.argmax(-1).tolist() == done.action.tolist()


def test_refusals(policies):
    ctx = context(policies)
    with pytest.raises(ValueError, match="answers of one row"):
        AddCorrections()([Episode(TASK[0], 0, 0)], ctx)
    cut = replace(ctx, sampling=Sampling(max_tokens=6, top_k=5, stop=list(ENDS)))
    with pytest.raises(ValueError, match="sample without truncation"):
        AddCorrections()(sampled(cut), cut)
