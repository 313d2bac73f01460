"""Episodes with tools: one row each, what was read is masked, and nothing is tokenised twice."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.rng import derive_seed
from mmrl.core.types import Completion, Context, PolicyOutput, Sampling
from mmrl.data.collate import collate
from mmrl.data.collector import episode_metrics
from mmrl.engines.local import LocalEngine
from mmrl.evaluation.metrics.counts import EventCounts
from mmrl.objectives.objective import Objective
from mmrl.objectives.policy import ClippedSurrogate
from mmrl.objectives.weighting import TokenMean
from mmrl.ops.masked import masked_mean
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.text.single_turn import SingleTurn
from mmrl.rollouts.text.tool_demonstrations import ToolDemonstrations
from mmrl.rollouts.text.tools import ToolUse
from mmrl.tools.call_parser import TagParser
from tasks.wiki import Search, Wiki
from tests.tiny_recipes import Counting
from tests.tools.examples import STOPS, Always, Count, Divide, Echo

PARSER = TagParser(result_template="[{text}]", error_template="[{name}]")


def policy(seed=0):
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    result = TextPolicy(config={"model_type": "qwen2", **sizes, "num_key_value_heads": 2})
    return result.eval()


POLICY = policy()


@dataclass
class Spoken:
    """An engine that says, for each completion, the next of its lines; it keeps the sizes of the batches asked for."""

    lines: dict[int, list[str]]

    def __post_init__(self):
        self.batches, self.prefixes = [], []

    def sample(self, requests, sampling):
        self.batches.append(len(requests))
        self.prefixes += [None if r.prefix is None else POLICY.decode(r.prefix.tolist()) for r in requests]
        return [self._one(request) for request in requests]

    def _one(self, request):
        message = "" if request.prefix is None else POLICY.decode(request.prefix.tolist())
        speaker = int(request.observation["messages"][0]["content"].split()[-1].rstrip("="))
        line = self.lines[speaker][message.count("]")]  # one for every answer read
        ids = POLICY.tokenize(line)
        return Completion(
            POLICY.encode(request.observation), ids, torch.full((len(ids),), -0.5), torch.ones(len(ids)).bool(), line,
            extra={"temperature": torch.tensor(1.0)},
        )  # fmt: skip


def played(tools, lines, **options):
    engine = Spoken(lines)
    ctx = Context(Counting(), engine, POLICY, Sampling(), seed=0, iteration=0)
    task = Counting()
    return engine, ToolUse(tools, PARSER, **options).collect([(slot, task[slot]) for slot in lines], ctx)


def text_of(episode, mask):
    done = episode.turns[0].completion
    return POLICY.decode(done.action[done.action_mask == mask].tolist())


def test_an_episode_is_one_row_in_which_what_was_read_is_masked():
    lines = {0: ["<say>hi</say>", '<div>{"left": 8, "right": 2}</div>', "4"], 1: ["7"]}
    engine, (long, short) = played({"say": Echo(), "div": Divide()}, lines)
    done = long.turns[0].completion
    assert POLICY.decode(done.action.tolist()) == '<say>hi</say>[hi]<div>{"left": 8, "right": 2}</div>[4]4'
    assert text_of(long, True) == "".join(lines[0]) and text_of(long, False) == "[hi][4]"
    assert (done.behavior_logprobs[done.action_mask] == -0.5).all() and (
        done.behavior_logprobs[~done.action_mask] == 0
    ).all()
    assert long.output == "4" and long.ended == "done" and short.output == "7"
    assert long.info["counts"] == {"tools/say/ok": 1, "tools/div/ok": 1} and long.info["turns"] == 3
    # episodes at different turns share a batch, and those that are over are in none
    assert engine.batches == [2, 1, 1]
    assert engine.prefixes[:3] == [None, None, "<say>hi</say>[hi]"]


def test_the_next_episode_begins_when_one_ends_so_that_turns_mix():
    lines = {0: ["<say>a</say>", "<say>b</say>", "1"], 1: ["1"], 2: ["<say>a</say>", "1"]}
    engine, episodes = played({"say": Echo()}, lines, max_concurrent=2)
    assert engine.batches == [2, 2, 2]
    assert engine.prefixes == [None, None, "<say>a</say>[a]", None, "<say>a</say>[a]<say>b</say>[b]", "<say>a</say>[a]"]
    assert [e.output for e in episodes] == ["1"] * 3


def test_the_batch_waits_for_slow_tools_unless_it_has_a_timeout():
    lines = {0: ["<slow>a</slow>", "1"], 1: ["<say>a</say>", "1"]}
    tools = {"slow": Echo(after=0.3), "say": Echo()}
    assert played(tools, lines)[0].batches == [2, 2]
    assert played(tools, lines, batch_timeout_s=0.0)[0].batches == [2, 1, 1]


def test_what_a_caller_does_wrong_is_told_and_counted():
    lines = {0: ["b</say>", '<div>{"left": 1, "right": 0}</div>', "1"]}
    _, (episode,) = played({"say": Echo(), "div": Divide()}, lines)
    assert text_of(episode, False) == "[NoCall][DivisionByZero]" and episode.ended == "done"
    assert episode.info["counts"] == {"tools/none/NoCall": 1, "tools/div/DivisionByZero": 1}


def test_calls_beyond_the_last_turn_are_not_served():
    lines = {0: ["<say>a</say>", "<say>b</say>", "1"]}
    _, (episode,) = played({"say": Echo()}, lines, max_turns=1)
    assert episode.ended == "length" and episode.output == "<say>b</say>"
    assert episode.info["counts"] == {"tools/say/ok": 1, "tools/out_of_turns": 1}


@pytest.mark.parametrize(("way", "outcome"), [("raise", "raised"), ("bytes", "not_text"), ("hang", "timed_out")])
def test_a_fault_of_a_tool_is_an_error_and_no_score(way, outcome):
    lines = {0: ["<bad>a</bad>", "1"], 1: ["<say>a</say>", "1"]}
    tools = {"bad": Echo(way, timeout_s=0.05 if way == "hang" else 5.0), "say": Echo()}
    _, (failed, fine) = played(tools, lines)
    assert failed.ended == "error" and f"'bad' {outcome}" in failed.info["error"] and not failed.scores
    assert failed.info["counts"] == {f"tools/bad/{outcome}": 1}
    assert fine.ended == "done"
    _, (reported, _) = played(tools, lines, continue_on_fault=True)
    assert reported.ended == "done" and text_of(reported, False) == f"[{outcome}]"


def test_a_tool_that_keeps_something_is_one_for_each_episode():
    lines = {0: ["<n>a</n>", "<n>b</n>", "1"], 1: ["<n>a</n>", "1"]}
    _, episodes = played({"n": Count()}, lines)
    assert [text_of(e, False) for e in episodes] == ["[1][2]", "[1]"]


def test_outcomes_are_reported_by_name():
    lines = {0: ["<bad>a</bad>"], 1: ["<say>a</say>", "<say>b</say>", "1"]}
    _, episodes = played({"bad": Echo("raise"), "say": Echo()}, lines)
    light = [episode.light() for episode in episodes]
    assert EventCounts()(light) == {"tools/bad/raised": 0.5, "tools/say/ok": 1.0, "errors": 1.0}
    metrics = episode_metrics(light, kept=1, rows=1)
    assert metrics["rollout/tools/bad/raised"] == 1.0 and metrics["rollout/tools/say/ok"] == 2.0


def test_what_was_read_has_no_part_in_the_loss():
    # gains min(r A, clip(r) A) of 1.1, 1.2 and 0.9 over the three choices of the policy; all five would give 0.92
    ratio = torch.tensor([[1.1, 1.3, 5.0, 0.2, 0.9]])
    mask = torch.tensor([[True, True, False, False, True]])
    batch = Batch(action_mask=mask, behavior_logprobs=torch.zeros(1, 5), advantages=torch.ones(1, 5))
    batch["loss_weights"] = TokenMean()(batch, lambda value: value)
    objective = Objective({"policy": ClippedSurrogate()})
    logprobs = ratio.log().requires_grad_()
    loss, _ = objective(PolicyOutput(logprobs, torch.zeros(1, 5)), batch)
    assert_close(-loss, torch.tensor(1.066667))
    loss.backward()
    assert (logprobs.grad[~mask] == 0).all() and (logprobs.grad[mask] != 0).any()
    logprobs = torch.tensor([[-0.1, -0.2, -5.0, -5.0, -0.3]])
    assert_close(masked_mean(logprobs, mask), torch.tensor(-0.2))
    assert_close(logprobs.mean(), torch.tensor(-2.12))


# ---------------------------------------------------------------- with a policy that draws


def drawn(rollout, sampling, task, group_size=2, slots=range(3), **engine):
    local = LocalEngine(**engine)
    local.sync(POLICY, 3)
    ctx = Context(task, local, POLICY, sampling, seed=0, iteration=0, group_size=group_size)
    return rollout.collect([(slot, task[slot]) for slot in slots], ctx)


def test_the_learner_scores_the_row_as_it_was_sampled():
    rollout = ToolUse({"say": Echo()}, Always(result_template="[{text}]"), max_turns=2)
    for extra in ({}, {"top_k": 50}):
        episodes = drawn(rollout, Sampling(max_tokens=12, stop=STOPS, **extra), Counting())
        batch = collate(episodes, POLICY)
        mask = batch["action_mask"]
        assert max(e.info["turns"] for e in episodes) == 3 and len({int(m.sum()) for m in mask}) > 1
        with torch.no_grad():
            scored = POLICY(batch).logprobs
        assert_close(scored[mask], batch["behavior_logprobs"][mask], atol=2e-5, rtol=0)
        soiled = batch.with_columns(behavior_logprobs=torch.where(mask, batch["behavior_logprobs"], torch.nan))
        assert_close(masked_mean(soiled["behavior_logprobs"], mask), masked_mean(batch["behavior_logprobs"], mask))


def test_who_is_in_the_batch_changes_nothing():
    rollout = ToolUse({"say": Echo()}, Always(result_template="[{text}]"), max_turns=2)
    sampling = Sampling(max_tokens=12, stop=STOPS)
    alone = [drawn(rollout, sampling, Counting(), slots=[slot]) for slot in range(3)]
    together = drawn(replace_max_concurrent(rollout, 2), sampling, Counting(), max_rows=3)
    for one, other in zip([e for group in alone for e in group], together):
        assert torch.equal(one.turns[0].completion.action, other.turns[0].completion.action)


def replace_max_concurrent(rollout, max_concurrent):
    return ToolUse(rollout.tools, rollout.parser, rollout.max_turns, max_concurrent=max_concurrent)


def test_without_a_call_it_is_a_single_turn():
    sampling, task = Sampling(max_tokens=5), Counting()
    tools = drawn(ToolUse({"say": Echo()}), sampling, task)
    plain = drawn(SingleTurn(), sampling, task)
    assert [e.output for e in tools] == [e.output for e in plain]
    for one, other in zip(tools, plain):
        assert torch.equal(one.turns[0].completion.behavior_logprobs, other.turns[0].completion.behavior_logprobs)
    assert derive_seed(0, "train", 0, 1, 0) != derive_seed(0, "train", 0, 1, 0, 1)


def test_an_expert_with_tools_is_right_and_only_its_own_words_are_learned():
    task = Wiki(people=30)
    rollout = ToolDemonstrations({"?": Search(task)}, replace(PARSER, open_tag="{name}", close_tag=";"), max_turns=2)
    for split in ("train", "held_out"):
        here = task.on(split)
        for episode in drawn(rollout, Sampling(), here, group_size=1, slots=range(5)):
            assert here.score(episode) == {"exact": 1.0} and episode.source == "demo"
            first, second, answer = here.script(episode.prompt.index)
            assert text_of(episode, True) == first + second + answer
            assert first[1:3] in text_of(episode, False) and answer in text_of(episode, False)
            assert episode.turns[0].completion.action[-1] == POLICY.tokenizer.eos_token_id


def test_kept_demonstrations_are_read_with_their_own_prompts():
    """Problems that had one slot in different iterations meet in a third one."""
    task = Wiki(people=30)
    tools = {"?": Search(task)}, replace(PARSER, open_tag="{name}", close_tag=";")
    kept, fresh = (ToolDemonstrations(*tools, max_turns=2, cache_episodes=each) for each in (True, False))
    ctx = Context(task, None, POLICY, Sampling(), seed=0, iteration=0)
    for iteration, indices in enumerate([(0, 1), (2, 3), (0, 2)]):
        asked = [(slot, task[index]) for slot, index in enumerate(indices)]
        found, expected = (
            collate(part.collect(asked, replace(ctx, iteration=iteration)), POLICY) for part in (kept, fresh)
        )
        assert found.keys() == expected.keys()
        for name, column in expected.items():
            assert torch.equal(found[name], column), (iteration, name)


def test_no_tools_are_refused():
    with pytest.raises(ValueError, match=r"rollout\.tools is empty"):
        ToolUse({})
    with pytest.raises(ValueError, match=r"rollout\.max_turns"):
        ToolUse({"say": Echo()}, max_turns=0)
