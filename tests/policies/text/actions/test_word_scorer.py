"""Word scorer: scores by loops over plain modules, padding, whole episodes, imitation and files."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.rng import Noise
from mmrl.core.types import Context, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.policies.text.actions.word_scorer import WordScorer
from mmrl.rollouts.text.environment import EnvironmentRollout
from mmrl.rollouts.text.environment_demonstrations import EnvironmentDemonstrations
from tasks.house import House

TASK = House(max_turns=4, idle=1)


def make_policy(**options) -> WordScorer:
    torch.manual_seed(0)
    return WordScorer(buckets=512, embedding=4, hidden=8, **options)


def raw(*actions, text="You see the cup."):
    messages = ({"role": "system", "content": "Put the cup away."}, {"role": "user", "content": text})
    return {"messages": messages, "admissible_actions": actions}


def context(policy):
    engine = LocalEngine()
    engine.sync(policy, 0)
    return Context(TASK, engine, policy, Sampling(), seed=0, iteration=0, group_size=2)


def encode_alone(encoder, ids):
    return encoder.gru(encoder.embedding(torch.tensor(ids))[None])[1][0, 0]


def test_the_scores_are_those_of_one_text_at_a_time():
    policy = make_policy(value_head=True)
    rows = [raw("take the cup", "wait"), raw("go", "take the cup", "put the cup away", text="Hm")]
    with torch.no_grad():
        scores, values = policy.score(policy.collate([policy.encode(row) for row in rows]))
        for n, row in enumerate(rows):
            state = torch.cat(
                [encode_alone(policy.encoders[name], policy.hash_words(row["messages"][i]["content"]))
                 for i, name in enumerate(("task", "state"))]
            )  # fmt: skip
            assert_close(values[n], policy.value_head(state)[0])
            for k, action in enumerate(row["admissible_actions"]):
                string = encode_alone(policy.encoders["admissible"], policy.hash_words(action))
                hidden = torch.relu(policy.state_layer(state) + policy.action_layer(string))
                assert_close(scores[n, k], policy.score_layer(hidden)[0])
    assert scores[0, 2] == -1e4  # there are two actions in the first row


def test_every_turn_of_an_episode_is_an_admissible_action():
    policy = make_policy(value_head=True)
    episodes = EnvironmentRollout(history=1).collect([(i, TASK[i]) for i in range(4)], context(policy))
    assert all(e.info["counts"] == {"environment/invalid": 0, "environment/unparsable": 0} for e in episodes)
    batch = collate(episodes, policy)
    with torch.no_grad():
        out = policy(batch)
    assert_close(out.logprobs, batch["behavior_logprobs"], atol=1e-5, rtol=0)
    assert_close(out.values, batch["values"], atol=1e-5, rtol=0)
    scores, _ = policy.score(batch.observation())
    assert_close(out.extra["q"][:, :, 0], scores.gather(1, batch["action"]))
    assert_close(policy.predict_values(batch.observation()), out.values)


def test_the_experts_actions_are_their_places():
    policy = make_policy()
    (episode,) = EnvironmentDemonstrations().collect([(0, TASK[0])], context(policy))
    environment = TASK.make_environment()
    step = environment.reset(TASK[0])
    for turn, action in zip(episode.turns, TASK.script(0), strict=True):
        assert step.admissible_actions[int(turn.completion.action)] == action
        step = environment.step(action)


def test_a_saved_policy_is_loaded(tmp_path):
    policy = make_policy()
    policy.save_pretrained(tmp_path)
    again = WordScorer(path=str(tmp_path))
    observation = policy.collate([policy.encode(raw("a", "b c"))])
    assert torch.equal(again.score(observation)[0], policy.score(observation)[0])


def test_refusals():
    policy = make_policy()
    for actions in (("go", "go"), ("go", " "), ("go\nnow",)):
        with pytest.raises(ValueError, match="must be different texts of one line"):
            policy.encode(raw(*actions))
    with pytest.raises(ValueError, match="states them"):
        policy.encode({"messages": raw()["messages"]})
    with pytest.raises(ValueError, match="is not admissible"):
        policy.encode_demonstration(raw("go"), "stay")
    with pytest.raises(ValueError, match="policy"):
        WordScorer(hidden=0)


def test_a_text_without_words_has_an_encoding():
    policy = make_policy()
    action = policy.act(policy.collate([policy.encode(raw("?", text=""))]), Sampling(), Noise([0]))
    assert action.output == ["?"]
