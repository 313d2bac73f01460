"""Rollouts of answers from a file: which lines an iteration reads, and what is refused."""

import json
from dataclasses import replace

import pytest
import torch

from mmrl.core.types import Context, Sampling
from mmrl.policies.text.scorer import ScoringPolicy
from mmrl.rollouts.offline.answers import AnswerPairs, Answers
from tests.tiny_recipes import Counting


class Encoder:
    """Stands in for a policy: an observation is its text, an answer the codes of its characters."""

    def encode(self, raw):
        return {"input_ids": torch.tensor([len(raw["messages"])])}

    def encode_demonstration(self, raw, output):
        return torch.tensor([ord(character) for character in output])

    def write_turn(self, raw, output):
        return output


def context(**changes) -> Context:
    task = Counting()
    ctx = Context(task, None, Encoder(), Sampling(), seed=0, iteration=0, num_prompts=4)  # type: ignore[arg-type]
    return replace(ctx, **changes)


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def line(index, **texts):
    return {"key": f"counting/train/{index}", "index": index, **texts}


def prompts(task, count=4):
    return [(slot, task[slot]) for slot in range(count)]


def collect(rollout, **changes):
    ctx = context(**changes)
    return rollout.collect(prompts(ctx.task), ctx)


def test_every_pass_reads_every_line_once_in_an_order_of_its_own(tmp_path):
    """Ten lines, four an iteration: five iterations are two passes."""
    rollout = Answers(write(tmp_path / "rows.jsonl", *(line(i, completion=f"a{i}") for i in range(10))))
    outputs = [e.output for iteration in range(5) for e in collect(rollout, iteration=iteration)]
    first, second = outputs[:10], outputs[10:]
    assert sorted(first) == sorted(second) == [f"a{i}" for i in range(10)] and first != second
    again = Answers(str(rollout.path))  # of a process that resumes
    assert [e.output for e in collect(again, iteration=3)] == outputs[12:16]
    assert [e.output for e in collect(again, iteration=0, seed=1)] != outputs[:4]


def test_ranks_read_the_lines_of_their_slots(tmp_path):
    rollout = Answers(write(tmp_path / "rows.jsonl", *(line(i, completion=f"a{i}") for i in range(10))))
    whole = [e.output for e in collect(rollout, iteration=2)]
    ctx = context(iteration=2)
    parts = [rollout.collect(prompts(ctx.task)[rank::2], replace(ctx, rank=rank, world_size=2)) for rank in (0, 1)]
    assert [parts[slot % 2][slot // 2].output for slot in range(4)] == whole


def test_an_answer_is_learned_with_the_prompt_of_its_own_problem(tmp_path):
    rollout = Answers(write(tmp_path / "rows.jsonl", line(7, completion="ab")))
    for slot, episode in enumerate(collect(rollout)):
        assert (episode.prompt.key, episode.group, episode.source) == ("counting/train/7", slot, "demo")
        assert episode.turns[0].completion.action.tolist() == [97, 98]


def test_pairs_are_two_episodes_of_a_group(tmp_path):
    rollout = AnswerPairs(write(tmp_path / "rows.jsonl", line(3, chosen="b", rejected="w")))
    episodes = collect(rollout)
    assert [(e.output, e.turns[0].completion.extra["preference"].item()) for e in episodes[:2]] == [("b", 1), ("w", -1)]
    assert [(e.group, e.sample_index) for e in episodes] == [(slot, i) for slot in range(4) for i in (0, 1)]
    assert len({e.turns[0].completion.prompt_id for e in episodes[:2]}) == 1  # the prompt is read once
    assert AnswerPairs.writes() == {"preference"} and "preference" not in Answers.writes()


def test_a_reward_model_reads_each_answer_of_a_pair_with_its_prompt(tmp_path):
    """The ids are those of the untouched tokenizer: the prompt, the answer, the end of the sequence."""
    config = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    policy = ScoringPolicy(config={"model_type": "qwen2", "num_key_value_heads": 1, **config})
    rollout = AnswerPairs(write(tmp_path / "rows.jsonl", line(3, chosen="12", rejected="7")))
    better, worse = collect(rollout, policy=policy)[:2]
    tokenizer, question = policy.tokenizer, Counting()[3].messages[0]["content"]
    for episode, text in ((better, "12"), (worse, "7")):
        ids = tokenizer(question + text, add_special_tokens=False)["input_ids"]
        assert episode.turns[0].completion.observation["input_ids"].tolist() == [*ids, tokenizer.eos_token_id]
    assert better.turns[0].completion.prompt_id is None  # of prompts that are read together


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([line(0, chosen="a", rejected="b")], "rows.jsonl:1: completion is missing or no str"),
        ([line(0, completion="a"), {"key": 3}], "rows.jsonl:2: key is missing or no str"),
        ([{"key": "other/train/0", "index": 0, "completion": "a"}], "answer to 'other/train/0', and problem 0"),
        ([line(400, completion="a")], "problem 400 of the task is None"),
        ([], "has no answers"),
    ],
)
def test_a_wrong_file_is_refused_by_line(rows, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        collect(Answers(write(tmp_path / "rows.jsonl", *rows)))


def test_a_missing_or_broken_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        collect(Answers(str(tmp_path / "rows.jsonl")))
    (tmp_path / "rows.jsonl").write_text('{"key": ')
    with pytest.raises(ValueError, match=r"rows\.jsonl:1: not JSON"):
        collect(Answers(str(tmp_path / "rows.jsonl")))
