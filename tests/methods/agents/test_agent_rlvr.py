"""Agent-RLVR: which problems are tried again, what leaves the context, pairs by tests, and the reward model."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.schedule import list_steps
from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.types import Completion, Context, Episode, PolicyOutput, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.methods.agents.agent_rlvr.guidance import RetryWithGuidance, add_guidance, remove_guidance
from mmrl.methods.agents.agent_rlvr.pairs import TestedPairs, select_pair
from mmrl.methods.agents.agent_rlvr.reward_model import AttemptPairs, TranscriptScore, write_transcript
from mmrl.objectives.preference import DPOLoss
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.scoring import Scorer
from mmrl.rollouts.text.tools import ToolUse
from tasks.patches.task import OpenFile, Patches
from tasks.split_facts.task import SplitFacts
from tests.rollouts.text.test_tools import PARSER, POLICY

TASK = Patches()


def build_tools():
    return ToolUse({"?": OpenFile(TASK)}, replace(PARSER, open_tag="{name}", close_tag=";"), max_turns=2)


LAWS = [TestedPairs, lambda: RetryWithGuidance(build_tools(), retries=2)]


@dataclass
class Weak:
    """An engine of an agent that opens `a` and patches it, but the file that guidance points to; it notes models."""

    seeds: tuple = ()

    def __post_init__(self):
        self.read, self.models, self.drawn = [], [], []

    def sample(self, requests, sampling):
        return [self._write(request) for request in requests]

    def _write(self, request):
        text = request.observation["messages"][-1]["content"]
        self.read.append(text)
        self.models.append(request.model)
        self.drawn.append(request.seed)
        issue, _, guidance = text.partition("|")
        file = guidance[-1:] or "a"
        turn = f"?{file};" if request.prefix is None else f"{file}{issue[-1]}"
        ids = torch.tensor(
            [*POLICY.tokenize(turn).tolist(), *([] if request.prefix is None else [POLICY.tokenizer.eos_token_id])]
        )
        return Completion(
            POLICY.encode(request.observation), ids, torch.full((len(ids),), -1.0), torch.ones(len(ids)).bool(), turn,
        )  # fmt: skip


def play(indices, engine, samples=2):
    """Scored attempts at problems, and their context."""
    scorer = Scorer(TASK, WeightedSum({"exact": 1.0}))
    ctx = Context(TASK, engine, POLICY, Sampling(max_tokens=4), 0, 0, group_size=samples, collector=scorer)
    episodes = build_tools().collect([(slot, TASK[index]) for slot, index in enumerate(indices)], ctx)
    scorer.score(episodes)
    return episodes, ctx


def find(file, count):
    """Problems whose file at fault is this one, or not."""
    return [i for i in range(200) if (TASK[i].answer[0] == "a") == file][:count]


def test_failed_problems_are_tried_again_with_guidance():
    engine = Weak()
    episodes, ctx = play([*find(True, 1), *find(False, 1)], engine)
    assert [e.scores["exact"] for e in episodes] == [1, 1, 0, 0]
    plain_seeds = set(engine.drawn)
    engine.read.clear(), engine.drawn.clear()
    out = RetryWithGuidance(build_tools(), retries=3, instruction="|")(episodes, ctx)
    file = out[2].prompt.answer[0]
    # the failed patch of a, and where to look; three attempts of two turns, in streams of their own
    assert set(engine.read) == {f"{out[2].prompt.messages[0]['content']}|a-{file}"} and len(engine.read) == 6
    assert not plain_seeds & set(engine.drawn)
    assert [(e.group, e.sample_index) for e in out] == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3), (1, 4)]
    assert [e.scores["exact"] for e in out] == [1, 1, 0, 0, 1, 1, 1]
    names = ("guidance/problems", "guidance/solved", "guidance/attempts")
    assert [[out[i].info["counts"][name] for name in names] for i in (0, 2)] == [[0, 0, 0], [1, 1, 3]]


def test_a_problem_that_one_attempt_solved_is_not_tried_again():
    episodes, ctx = play(find(True, 1), Weak())
    episodes[1].scores["exact"] = 0.0
    out = RetryWithGuidance(build_tools(), retries=2)(episodes, ctx)
    assert len(out) == 2 and out[0].info["counts"]["guidance/problems"] == 0


def test_attempts_that_failed_by_an_error_are_left_out():
    class Fails(Weak):
        def _write(self, request):
            done = super()._write(request)
            first = ["|" in text for text in self.read].index(True) if "|" in self.read[-1] else None
            return replace(done, ended="error") if first == len(self.read) - 1 else done

    episodes, ctx = play(find(False, 1), Fails())
    out = RetryWithGuidance(build_tools(), retries=3, instruction="|")(episodes, ctx)
    assert len(out) == 4 and out[0].info["counts"]["guidance/attempts"] == 2 and {e.ended for e in out} == {"done"}


def test_the_row_that_is_not_trained_on_has_turns():
    episodes, ctx = play(find(False, 1), Weak(), samples=1)
    empty = replace(episodes[0], turns=[])
    (row,) = TestedPairs()([empty, *episodes], ctx)
    assert len(row.turns) == len(episodes[0].turns) > 0 and float(row.turns[0].completion.extra["preference"]) == 0
    assert TestedPairs()([empty], ctx) == []


def test_guidance_leaves_the_context_and_the_tokens_stay():
    episodes, ctx = play(find(False, 1), Weak(), samples=1)
    guided = RetryWithGuidance(build_tools(), retries=1, instruction="|")(episodes, ctx)[-1]
    prompt = TASK[find(False, 1)[0]]
    assert guided.prompt == prompt and guided.info["guided"]
    # as if the attempt had been made at the prompt itself
    (expected,) = POLICY.encode(prompt.observation).values()
    done = guided.turns[0].completion
    assert_close(next(iter(done.observation.values())), expected)
    shown = TASK.read_file(prompt, prompt.answer[0])
    assert write_transcript(guided, POLICY).startswith(f"?{prompt.answer[0]};[{shown}]{prompt.answer}")
    assert done.action_mask.tolist() == [True] * 3 + [False] * 4 + [True] * 3  # the result is not trained on
    assert done.policy_version == -1 and not done.behavior_logprobs.any()


def test_problems_that_guidance_does_not_help_give_no_pair():
    @dataclass
    class Deaf(Weak):
        def _write(self, request):
            observation = {**request.observation, "messages": ({"role": "user", "content": "Q>1"},)}
            return super()._write(replace(request, observation=observation))

    episodes, ctx = play(find(False, 1), Deaf())
    out = RetryWithGuidance(build_tools(), retries=2, instruction="|")(episodes, ctx)
    assert len(out) == 4 and not any(e.scores["exact"] for e in out)
    (row,) = TestedPairs()(out, ctx)
    assert float(row.turns[0].completion.extra["preference"]) == 0  # one row that is not trained on


def test_pairs_by_hand():
    assert select_pair([False, True, False, True]) == (1, 0)
    assert select_pair([True, True, False]) == (0, 2)
    assert select_pair([True, True]) is None and select_pair([False]) is None and select_pair([]) is None


def test_a_pair_of_an_attempt_with_guidance_and_one_without():
    episodes, ctx = play([*find(True, 1), *find(False, 1)], Weak())
    rows = TestedPairs()(RetryWithGuidance(build_tools(), retries=2, instruction="|")(episodes, ctx), ctx)
    # the first problem is always solved; of the second the first guided attempt is chosen
    assert [(r.group, r.sample_index, float(r.turns[0].completion.extra["preference"])) for r in rows] == [
        (1, 2, 1.0), (1, 0, -1.0),
    ]  # fmt: skip
    contexts = {str(r.turns[0].completion.observation) for r in rows}
    assert len(contexts) == 1  # both in the context without guidance


@pytest.mark.parametrize("margins, loss", [((0.5, -0.5), 0.644397), ((0.3, 0.3), 0.693147)])
def test_dpo_by_hand_on_the_agents_tokens(margins, loss):
    """-log sigmoid(.1 * 1) and ln 2; a result's token, 5 nats likelier than under the reference, does not count."""
    batch = Batch(
        action_mask=torch.tensor([[True, False]] * 2),
        ref_logprobs=torch.zeros(2, 2),
        group=torch.zeros(2).long(),
        preference=torch.tensor([1.0, -1.0]),
    )
    logprobs = torch.tensor([[margins[0], 5.0], [margins[1], 0.0]])
    out = DPOLoss(beta=0.1)(PolicyOutput(logprobs, torch.zeros(2, 2)), batch)
    assert out.tolist() == pytest.approx([loss, loss], abs=1e-6)


def test_the_pair_lowers_the_loss_where_the_right_file_gets_likelier():
    episodes, ctx = play(find(False, 2), Weak())
    rows = TestedPairs()(RetryWithGuidance(build_tools(), retries=1, instruction="|")(episodes, ctx), ctx)
    batch = collate(rows, POLICY)
    zero = torch.zeros(batch["action"].shape)
    better = torch.where(batch["preference"][:, None] > 0, zero + 0.1, zero)
    loss = DPOLoss(beta=1.0)
    batch = batch.with_columns(ref_logprobs=zero)
    before, after = (loss(PolicyOutput(each, zero), batch) for each in (zero, better))
    # six tokens of the agent are .1 likelier: a margin of .6
    assert before.tolist() == pytest.approx([math.log(2)] * 4)
    assert after.tolist() == pytest.approx([math.log(1 + math.exp(-0.6))] * 4, abs=1e-6)


def test_what_cannot_be_guided_is_refused():
    task = SplitFacts()
    episode = Episode(task[0], 0, 0, scores={"exact": 0.0})
    ctx = Context(task, None, POLICY, Sampling(), 0, 0)
    with pytest.raises(ConfigError, match=r"split_facts.*guide\(prompt, attempts\)"):
        RetryWithGuidance(build_tools())([episode], ctx)
    prompt = add_guidance(TASK[0], "c", "|")
    two = Episode(prompt, 0, 0, [Turn(Completion({}, *[torch.zeros(1)] * 3, "")) for _ in range(2)])
    with pytest.raises(ConfigError, match="2 rows"):
        remove_guidance(two, TASK[0], build_tools(), POLICY)


class Encoder:
    """A reward model that reads texts: it encodes what it is shown as it is."""

    device = torch.device("cpu")

    def __init__(self):
        self.read = []

    def encode(self, raw):
        self.read.append((raw["messages"][-1]["content"], raw["answer"]))
        return {"length": torch.tensor(len(raw["answer"]))}

    def encode_demonstration(self, raw, output):
        return torch.zeros(1).long()

    def write_turn(self, raw, output):
        return output

    def collate(self, rows):
        return {"length": torch.stack([row["length"] for row in rows]).float()}

    def scores(self, columns):
        return columns["length"]


def test_the_reward_model_learns_transcripts_of_the_frozen_agent():
    engine, model = Weak(), Encoder()
    index = find(False, 1)[0]
    ctx = Context(
        TASK, engine, model, Sampling(max_tokens=4), 0, 0,
        collector=Scorer(TASK, WeightedSum({"exact": 1.0})), models={"agent": POLICY},
    )  # fmt: skip
    rollout = AttemptPairs(build_tools(), attempts=2, retries=1, instruction="|")
    assert rollout.sampled_models() == {"agent"}
    rows = rollout.collect([(0, TASK[index]), (1, TASK[find(True, 1)[0]])], ctx)
    assert set(engine.models) == {"agent"}
    prompt = TASK[index]
    texts = [f"?{f};[{TASK.read_file(prompt, f)}]{f}{prompt.answer[1]}" for f in (prompt.answer[0], "a")]
    assert [(r.group, float(r.turns[0].completion.extra["preference"])) for r in rows] == [(0, 1.0), (0, -1.0)]
    assert [text.removesuffix("<eos>") for _, text in model.read] == texts
    assert {issue for issue, _ in model.read} == {prompt.messages[0]["content"]}  # without guidance


def test_the_reward_model_scores_transcripts():
    episodes, ctx = play(find(True, 1), Weak(), samples=1)
    model = Encoder()
    reward = TranscriptScore(weights={"reward_model": 1.0}).bind(replace(ctx, models={"reward_model": model}))
    (score,) = reward.scores(episodes)
    text = write_transcript(episodes[0], POLICY)
    assert model.read == [(TASK[find(True, 1)[0]].messages[0]["content"], text)] and "[" in text
    assert score == {"reward_model": float(len(text))}


def test_the_rounds_train_the_reward_model_on_the_newest_agent():
    file = read_rounds(["agent_rlvr"])
    steps = {step.name: step for step in list_steps(file)}
    assert steps["1/reward"].folders == ("1/dpo",) and steps["1/dpo"].weights == "0/agent"
    assert "unguided" in file.values["baselines"]


def test_an_attempt_of_the_frozen_agent_that_ended_in_an_error_makes_no_pair():
    """Of two attempts at a problem that is solved, the first request fails: what is left has no failed attempt."""

    class Fails(Weak):
        def _write(self, request):
            done = super()._write(request)
            return replace(done, ended="error") if len(self.read) == 1 else done

    ctx = Context(
        TASK, Fails(), Encoder(), Sampling(max_tokens=4), 0, 0,
        collector=Scorer(TASK, WeightedSum({"exact": 1.0})), models={"agent": POLICY},
    )  # fmt: skip
    (row,) = AttemptPairs(build_tools(), attempts=2, retries=0).collect([(0, TASK[find(True, 1)[0]])], ctx)
    assert float(row.turns[0].completion.extra["preference"]) == 0 and row.sample_index == 1


def test_the_reward_model_reads_the_tools_of_a_prompt():
    ((episode,), ctx) = play(find(True, 1), Weak(), samples=1)
    reward = TranscriptScore().bind(replace(ctx, models={"reward_model": Encoder()}))
    tool = {"name": "open"}
    assert reward._read(replace(episode, prompt=replace(episode.prompt, tools=(tool,))))["tools"] == [tool]
    assert reward._read(replace(episode, prompt=replace(episode.prompt, tools=())))["tools"] is None
