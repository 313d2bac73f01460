"""Episodes of text environments: a row a turn, what the policy is shown, and environments that fail or are slow."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.gae import GAE
from mmrl.annotators.group_advantage import GroupAdvantage
from mmrl.core.types import Completion, Context, Sampling
from mmrl.data.collate import collate
from mmrl.data.collector import episode_metrics
from mmrl.engines.local import LocalEngine
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.text.environment import EnvironmentRollout
from mmrl.rollouts.text.environment_demonstrations import EnvironmentDemonstrations
from mmrl.rollouts.text.scripted import Expert, Guess
from tests.text_environments import Count, texts

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
torch.manual_seed(0)
POLICY = TextPolicy(config={"model_type": "qwen2", **SIZES, "num_key_value_heads": 2}).eval()


@dataclass
class Actions:
    """An engine that writes the next of an episode's actions, by the position of the request's target in `lines`."""

    lines: dict[int, list[str]]

    def __post_init__(self):
        self.batches, self.raws, self.written = [], [], dict.fromkeys(self.lines, 0)

    def sample(self, requests, sampling):
        self.batches.append(len(requests))
        self.raws += [request.observation for request in requests]
        return [self._one(request) for request in requests]

    def _one(self, request):
        target = int(request.observation["messages"][0]["content"].split()[-1].rstrip("."))
        line = self.lines[target][self.written[target]]
        self.written[target] += 1
        ids = POLICY.tokenize(line)
        return Completion(
            POLICY.encode({**request.observation, "images": (), "messages": [{"role": "user", "content": "?"}]}),
            ids, torch.full((len(ids),), -0.5), torch.ones(len(ids)).bool(), line,
            extra={"temperature": torch.tensor(1.0)}, prompt_id=request.prompt_id,
        )  # fmt: skip


def play(lines, task=None, **options):
    """Episodes of the targets that `lines` names."""
    task = task or Count()
    engine = Actions(lines)
    ctx = Context(task, engine, POLICY, Sampling(), seed=0, iteration=0)
    return engine, EnvironmentRollout(**options).collect([(t - 1, task[t - 1]) for t in lines], ctx)


def test_every_turn_is_a_row_with_the_reward_of_its_action():
    engine, (long, short) = play({2: ["+", "-", "+", "+"], 1: ["+"]}, gamma=0.5)
    assert [turn.completion.output for turn in long.turns] == ["+", "-", "+", "+"]
    assert [turn.reward for turn in long.turns] == [1, 0, 1, 1] and long.ended == short.ended == "done"
    assert long.info["scores"] == {"return": 1 + 0.25 + 0.125, "turns": 4.0, "exact": 1.0}
    long.reward, short.reward = 10.0, 20.0
    batch = collate([long, short], POLICY)
    assert batch["reward"].tolist() == [1, 0, 1, 11, 21] and batch["step"].tolist() == [0, 1, 2, 3, 0]
    assert batch["is_last"].tolist() == [False, False, False, True, True] == batch["is_terminal"].tolist()
    assert engine.batches == [2, 1, 1, 1]


def test_episodes_of_one_kind_follow_each_other_and_keep_their_places():
    task, engine = Count(), Actions({1: ["+"], 2: ["+", "+"], 3: ["+", "+", "+"]})
    kinds = {1: "b", 2: "a", 3: "b"}
    prompts = [(t, replace(task[t - 1], info={**task[t - 1].info, "task": kinds[t]})) for t in kinds]
    ctx = Context(task, engine, POLICY, Sampling(), seed=0, iteration=0)
    episodes = EnvironmentRollout(max_concurrent=1).collect(prompts, ctx)
    assert [texts(raw)[0][1] for raw in engine.raws] == [f"Count to {t}. " for t in (2, 2, 1, 3, 3, 3)]
    assert [episode.group for episode in episodes] == [1, 2, 3]


def test_an_observation_is_the_prompt_the_last_turns_and_the_new_text():
    engine, _ = play({3: ["+", "-", "+", "+", "+"]}, history=2)
    system = ("system", "Count to 3. ")
    assert texts(engine.raws[0]) == [system, ("user", "[0]")]
    assert texts(engine.raws[1]) == [system, ("user", "[0]"), ("assistant", "+"), ("user", "[1]")]
    last = [("user", "[0]"), ("assistant", "+"), ("user", "[1]"), ("assistant", "+"), ("user", "[2]")]
    assert texts(engine.raws[4]) == [system, *last]
    assert texts(play({3: ["+", "+", "+"]})[0].raws[2]) == [system, ("user", "[2]")]


def test_images_are_shown_of_the_last_turns_only():
    engine, _ = play({3: ["+", "+", "+"]}, Count(images=True), history=2, image_history=1)
    assert [text for _, text in texts(engine.raws[2])][1:] == ["[0]", "+", "<image>[1]", "+", "<image>[2]"]
    assert [int(image.max()) for image in engine.raws[2]["images"]] == [1, 2]


def test_actions_are_read_by_the_extractor_and_shown_as_it_writes_them():
    line = "<think>plus or <act>-</act>?</think>I add <act>+</act>"
    engine, (episode,) = play({2: [line, line]}, extract={"tags": {"tag": "act"}}, history=1)
    assert episode.info["scores"]["exact"] == 1 and texts(engine.raws[1])[2] == ("assistant", "<act>+</act>")


def test_a_turn_without_an_action_is_counted_and_answered_or_ends_the_episode():
    options = {"extract": {"tags": {"tag": "act"}}, "history": 1}
    engine, (episode,) = play({1: ["hm", "<act>+</act>"]}, message="What?", **options)
    assert [turn.reward for turn in episode.turns] == [0, 1] and episode.ended == "done"
    assert texts(engine.raws[1])[2:] == [("assistant", "hm"), ("user", "What?")]
    assert episode.info["counts"] == {"environment/unparsable": 1, "environment/invalid": 0}
    _, (cut,) = play({1: ["hm"]}, message=None, **options)
    assert cut.ended == "done" and cut.info["scores"] == {"return": 0.0, "turns": 1.0, "exact": 0.0}
    _, (idle,) = play({1: ["hm"] * 5}, **options)
    assert idle.ended == "time" and len(idle.turns) == 5


def test_actions_that_the_environment_does_not_know_are_counted():
    _, (episode,) = play({1: ["7", "+"]})
    assert episode.info["counts"]["environment/invalid"] == 1
    metrics = episode_metrics([replace(episode, info={**episode.info, "tokens": 5})], 1, 2)
    assert metrics["rollout/environment/invalid"] == 1 and metrics["rollout/environment/unparsable"] == 0


def test_time_is_up_after_max_turns_and_is_no_terminal_state():
    _, (episode,) = play({3: ["-"] * 5})
    assert episode.ended == "time" and len(episode.turns) == 5 and episode.info["scores"]["exact"] == 0
    assert not collate([episode], POLICY)["is_terminal"].any()


@pytest.mark.parametrize(
    ("action", "why"),
    [("raise!", "OSError: the counter is broken (text_environments.py, line "), ("hang!", "TimeoutError: it took")],
)
def test_an_environment_that_fails_ends_its_episode_as_an_error(action, why):
    task = Count()
    engine, (failed, fine) = play({3: ["+", action], 2: ["+", "-", "+", "+"]}, task, timeout_s=1.0)
    assert failed.ended == "error" and why in failed.info["error"] and "after 2 actions" in failed.info["error"]
    assert fine.ended == "done" and fine.info["scores"]["exact"] == 1
    assert engine.batches == [2, 2, 1, 1]


def test_too_many_failures_stop_the_run():
    with pytest.raises(RuntimeError, match=r"2 episodes ended by a failure .*rollout\.max_failures=1.*broken"):
        play({3: ["raise!"], 2: ["raise!"]}, max_failures=1)


def test_environments_run_at_the_same_time_and_are_used_again():
    task = Count(seconds=0.5)
    engine = Actions({1: ["+"] * 8})
    rollout = EnvironmentRollout(max_concurrent=4, threads=4)
    ctx = Context(task, engine, POLICY, Sampling(), seed=0, iteration=0, group_size=8)
    rollout.collect([(0, task[0])], ctx)
    assert max(task.at_once) == 4 and engine.batches == [4, 4]
    assert task.log == ["made"] * 4
    rollout.collect([(0, task[0])], replace(ctx, engine=Actions({1: ["+"] * 8})))
    assert task.log == ["made"] * 4
    rollout.collect([], replace(ctx, task=Count(max_turns=3)))
    assert task.log == ["made"] * 4 + ["closed"] * 4


@dataclass
class Refusing(Actions):
    """An engine that gives no completion for the request of target 3."""

    def _one(self, request):
        done = super()._one(request)
        return replace(done, ended="error") if "to 3" in request.observation["messages"][0]["content"] else done


def test_the_environment_of_a_turn_that_the_engine_failed_is_used_again():
    task = Count()
    rollout = EnvironmentRollout(max_concurrent=1)
    ctx = Context(task, Refusing({3: ["+"], 1: ["+"]}), POLICY, Sampling(), seed=0, iteration=0)
    failed, fine = rollout.collect([(2, task[2]), (0, task[0])], ctx)
    assert (failed.ended, fine.ended) == ("error", "done") and fine.info["scores"]["exact"] == 1
    rollout.close()
    assert task.log == ["made", "closed"]


def test_a_batch_does_not_wait_for_slow_environments_past_its_timeout():
    task = Count()
    engine, episodes = play({3: ["+", "hang!"], 2: ["-", "+", "+", "+"]}, task, timeout_s=3.0, batch_timeout_s=0.5)
    assert [e.ended for e in episodes] == ["error", "done"]
    assert engine.batches[:2] == [2, 2] and set(engine.batches[2:]) == {1}


def test_refusals():
    for options, name in (
        ({"history": -1}, "history"),
        ({"image_history": 1}, "image_history=1 is more than"),
        ({"max_concurrent": 0}, "max_concurrent"),
        ({"gamma": 1.5}, "gamma"),
        ({"extract": "letters"}, "rollout.extract='letters' is no extractor"),
    ):
        with pytest.raises(ValueError, match=name):
            EnvironmentRollout(**options)


# ---------------------------------------------------------------- with a policy that draws


def draw(task, slots=range(3), group_size=2, seed=0, policy=POLICY, **options):
    engine = LocalEngine()
    engine.sync(policy, 3)
    ctx = Context(task, engine, policy, Sampling(max_tokens=3), seed=seed, iteration=0, group_size=group_size)
    return EnvironmentRollout(**options).collect([(slot, task[slot]) for slot in slots], ctx)


def choices(episodes):
    return [[turn.completion.action.tolist() for turn in episode.turns] for episode in episodes]


def test_the_learner_scores_the_rows_as_they_were_sampled():
    batch = collate(draw(Count(), history=2), POLICY)
    with torch.no_grad():
        scored = POLICY(batch).logprobs
    mask = batch["action_mask"]
    assert_close(scored[mask], batch["behavior_logprobs"][mask], atol=2e-5, rtol=0)
    assert batch["policy_version"].unique().tolist() == [3]


def test_an_episode_depends_on_its_seed_and_not_on_those_beside_it():
    task = Count(chance=True)
    together = choices(draw(task, history=1))
    alone = [choices(draw(task, [slot], history=1, max_concurrent=1)) for slot in range(3)]
    assert together == [episode for group in alone for episode in group]
    assert together != choices(draw(task, history=1, seed=1))


def test_groups_of_episodes_have_group_advantages_and_values_have_gae():
    episodes = draw(Count())
    for number, episode in enumerate(episodes):
        episode.reward = float(number % 2)
    ctx = Context(Count(), None, POLICY, Sampling(), seed=0, iteration=0, group_size=2)
    batch = GroupAdvantage()(collate(episodes, POLICY), ctx)
    for episode in range(6):
        found = batch["advantages"][(batch["episode"] == episode)[:, None] & batch["action_mask"]]
        assert_close(found, torch.full_like(found, 1.0 if episode % 2 else -1.0), atol=1e-3, rtol=0)
    values = torch.zeros_like(batch["behavior_logprobs"])
    returns = GAE(gamma=1.0, gae_lambda=1.0)(batch.with_columns(values=values), ctx)["returns"]
    for number, episode in enumerate(episodes):
        rows = returns[batch["episode"] == number]
        for turn, row in enumerate(rows):
            later = sum(each.reward for each in episode.turns[turn:]) + episode.reward
            assert row[0].item() == pytest.approx(later)


# ---------------------------------------------------------------- without a policy that draws


def test_the_expert_and_random_actions_play_without_a_policy():
    task = Count()
    ctx = Context(task, None, None, Sampling(), seed=0, iteration=0, group_size=2)
    prompts = [(slot, task[slot]) for slot in range(3)]
    experts = Expert().collect(prompts, ctx)
    assert [len(e.turns) for e in experts] == [1, 1, 2, 2, 3, 3] and all(e.info["scores"]["exact"] for e in experts)
    first, again, other = (Guess().collect(prompts, replace(ctx, seed=seed)) for seed in (0, 0, 1))
    outputs = [[[turn.completion.output for turn in e.turns] for e in some] for some in (first, again, other)]
    assert outputs[0] == outputs[1] != outputs[2]


def test_demonstrations_are_the_experts_turns_as_the_rollout_shows_them():
    task = Count()
    ctx = Context(task, None, POLICY, Sampling(), seed=0, iteration=0, group_size=4)
    (episode,) = EnvironmentDemonstrations(history=1).collect([(7, task[2])], ctx)
    assert episode.source == "demo" and [turn.completion.output for turn in episode.turns] == ["+"] * 3
    seen = [POLICY.decode(turn.completion.observation["input_ids"].tolist()) for turn in episode.turns]
    assert seen == ["Count to 3. [0]", "Count to 3. [0]+[1]", "Count to 3. [1]+[2]"]
    assert episode.turns[0].completion.action[-1] == POLICY.tokenizer.eos_token_id
    (weak,) = EnvironmentDemonstrations(random_fraction=1.0).collect([(7, task[2])], ctx)
    assert any(turn.completion.output == "-" for turn in weak.turns)
