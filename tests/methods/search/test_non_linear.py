"""Non-linear reasoning: graph attention by loops, masks, and a controller that jumps back out of a dead end."""

import numpy as np
import pytest
import torch
from torch.nn.functional import elu, leaky_relu
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.methods.search.non_linear import NodeHead, TreeAttention, TreeController, TreeEncoder, connect
from sims.program_tree.tree import EQUAL, FEATURES, ProgramTree

NODES = 8
SOURCE, TARGET, OTHER = "not (not a or not b)", "(b and a)", "(b or a)"
DEAD_END, WAY = "(a and b)", "not not not (not a or not b)"


def make_policy(nodes=NODES, **options) -> TreeController:
    torch.manual_seed(0)
    return TreeController(nodes * (len(FEATURES) + 1), nodes + 2, **{"width": 16, **options})


def test_nodes_attend_to_parents_children_and_themselves():
    """A root with two children, the second of which has one; the last place is empty."""
    edges = connect(torch.tensor([[1, 1, 1, 1, 0]]).bool(), torch.tensor([[-1.0, 0, 0, 2, -1]]))
    expected = [[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 1, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 1]]
    assert edges[0].int().tolist() == expected


def test_attention_is_that_of_a_loop():
    torch.manual_seed(0)
    layer, nodes = TreeAttention(3, 4), torch.randn(1, 4, 3)
    edges = connect(torch.ones(1, 4).bool(), torch.tensor([[-1.0, 0, 0, 2]]))
    hidden, out = nodes[0] @ layer.linear.weight.T, []
    for i in range(4):
        near = edges[0, i].nonzero()[:, 0].tolist()
        scores = [leaky_relu(layer.attend_from(hidden[i]) + layer.attend_to(hidden[j]), 0.2) for j in near]
        weights = torch.cat(scores).softmax(0)
        out.append(elu(sum(weight * hidden[j] for weight, j in zip(weights, near))))
    assert_close(layer(nodes, edges)[0], torch.stack(out))


def test_missing_nodes_attend_to_themselves_alone():
    """The second place is empty, though it names a parent and is named as one."""
    edges = connect(torch.tensor([[1, 0, 1]]).bool(), torch.tensor([[-1.0, 0, 1]]))
    assert torch.equal(edges[0], torch.eye(3).bool())


def test_attention_has_the_gradient_of_differences():
    torch.manual_seed(0)
    layer = TreeAttention(3, 4).double()
    edges = connect(torch.ones(1, 4).bool(), torch.tensor([[-1.0, 0, 0, 2]]))
    nodes = torch.randn(1, 4, 3, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda values: layer(values, edges), nodes)


def observe(envs, policy):
    raws = [env._observe() for env in envs]
    return policy.encode_batch({name: np.stack([raw[name] for raw in raws]) for name in raws[0]})


def make_env(equal, seed=0):
    """The source has a child near the target that leads nowhere; the other leads to it where the pair is equal."""
    children = {SOURCE: [DEAD_END, WAY], WAY: [TARGET] if equal else []}
    env = ProgramTree(NODES, proposer={"children": children}, pair=(SOURCE, TARGET if equal else OTHER, equal))
    env.reset(seed=seed)
    return env


def test_masked_actions_have_probability_0_and_acting_and_scoring_agree():
    policy, env = make_policy(), make_env(True)
    env.step(0)
    columns = observe([env] * 200, policy)
    action = policy.act(columns, Sampling(), Noise(range(200)))
    assert set(action.action[:, 0].tolist()) == {1, 2, NODES, NODES + 1}
    batch = Batch({f"obs.{name}": column for name, column in columns.items()}, temperature=torch.ones(200))
    out = policy(batch.with_columns(action=action.action))
    assert_close(out.logprobs, action.behavior_logprobs)
    assert_close(out.values, action.values)
    masked = policy(batch.with_columns(action=torch.zeros(200, 1, dtype=torch.long)))
    assert (masked.logprobs.exp() == 0).all()


def test_a_tree_with_empty_places_has_the_logits_of_the_smaller_one():
    """Weights do not depend on the number of places, and empty ones change nothing."""
    small, large = make_policy(4), make_policy(NODES)
    large.load_state_dict(small.state_dict())
    envs = [ProgramTree(n, proposer={"children": {SOURCE: [DEAD_END, WAY]}}, pair=(SOURCE, TARGET, True))
            for n in (4, NODES)]  # fmt: skip
    logits = []
    for env, policy in zip(envs, (small, large)):
        env.reset(seed=0)
        env.step(0)
        columns = observe([env], policy)
        state = columns["state"].clone()
        depth = state[:, : -env.size].unflatten(1, (env.size, -1))[..., FEATURES.index("depth")]
        depth *= env.size / NODES  # it is in units of the number of places
        logits.append(policy.head(policy.encoder({"state": state}), torch.ones(1)).logits[0])
    assert_close(logits[0][[0, 1, 2, 4, 5]], logits[1][[0, 1, 2, 8, 9]])


def play_episode(envs, policy, forced=(), greedy=False, seed=0):
    """Play trees to their verdicts: rows of observations, actions and rewards of each step."""
    steps, running, number = [], list(range(len(envs))), 0
    total = np.zeros(len(envs))
    while running:
        columns = observe([envs[i] for i in running], policy)
        sampling = Sampling(decode="argmax") if greedy else Sampling()
        action = policy.act(columns, sampling, Noise([seed * 10_000 + number * 100 + i for i in running])).action
        if number < len(forced):
            action = torch.full_like(action, forced[number])
        results = [envs[i].step(int(a)) for i, a in zip(running, action[:, 0])]
        steps.append((columns, action, list(running), [result[1] for result in results]))
        for i, result in zip(running, results):
            total[i] += result[1]
        running = [i for i, result in zip(running, results) if not result[2]]
        number += 1
    return steps, total


def test_after_200_episodes_it_returns_from_the_dead_end_to_the_sibling():
    """Actor-critic with undiscounted returns. After source and dead end are expanded, the sibling is what is left; the
    verdict follows from what it gives."""
    policy = make_policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for update in range(20):
        envs = [make_env(i % 2 == 0) for i in range(10)]
        steps, total = play_episode(envs, policy, seed=update)
        earned, loss = np.zeros(len(envs)), torch.zeros(())
        for columns, action, running, rewards in steps:
            rest = torch.tensor(total[running] - earned[running]).float()
            earned[running] += rewards
            batch = Batch({f"obs.{name}": column for name, column in columns.items()}, action=action)
            out = policy(batch.with_columns(temperature=torch.ones(len(running))))
            advantage = rest - out.values
            loss = loss - (advantage.detach() * out.logprobs[:, 0]).sum() + 0.5 * advantage.square().sum()
            loss = loss - 0.02 * out.entropy.sum()
        optimizer.zero_grad()
        (loss / len(envs)).backward()
        optimizer.step()
    envs = [make_env(True), make_env(False)]
    steps, _ = play_episode(envs, policy, forced=(0, 1), greedy=True)
    assert steps[2][1][:, 0].tolist() == [2, 2]  # back to the sibling
    assert steps[3][1][:, 0].tolist() == [NODES + EQUAL, NODES + 1 - EQUAL]


def test_a_saved_controller_is_loaded(tmp_path):
    policy, env = make_policy(), make_env(True)
    policy.save_pretrained(tmp_path)
    again = TreeController(path=str(tmp_path))
    columns = observe([env], policy)
    assert torch.equal(again.predict_values(columns), policy.predict_values(columns))


def test_refusals():
    for options in ({"actions": None}, {"actions": 2}, {"observation_dims": 81}, {"action_mask": False}, {"width": 0}):
        with pytest.raises(ValueError, match=r"TreeController|policy"):
            TreeController(**{"observation_dims": 80, "actions": 10, **options})


def test_encodings_of_two_nodes_by_hand():
    """relu(x + y) = 2 and 4; both attend equally to both, (2 + 4) / 2 = 3, which is added; the tree has the larger."""
    encoder = TreeEncoder(8, nodes=2, hidden=1, layers=1).eval()
    for parameter in encoder.parameters():
        torch.nn.init.ones_(parameter)
    for layer in (encoder.attention[0].attend_from, encoder.attention[0].attend_to, encoder.input_layer):
        torch.nn.init.zeros_(layer.weight if layer.bias is None else layer.bias)
    state = torch.tensor([[1.0, 1, 0, 1, 3, 0, -1, 0]])
    assert encoder({"state": state})[0, :, 0].tolist() == [5, 7, 7]


def test_a_place_without_a_node_is_no_part_of_the_tree():
    """Encodings relu(5 - x) are 4 of the node, x = 1, and 5 of the empty place."""
    encoder = TreeEncoder(4, nodes=2, hidden=1, layers=0)
    encoder.input_layer.weight.data[:], encoder.input_layer.bias.data[:] = -1.0, 5.0
    assert encoder({"state": torch.tensor([[1.0, 0, -1, -1]])})[0, :, 0].tolist() == [4, 5, 4]


def test_logits_have_a_gradient_and_a_temperature():
    torch.manual_seed(0)
    head, features = NodeHead(2).double(), torch.randn(1, 4, 2, dtype=torch.double, requires_grad=True)
    logits = [head(features, torch.full((1,), t, dtype=torch.double)).logits for t in (1.0, 2.0)]
    assert logits[0].shape == (1, 5) and logits[0].std() > 0
    normal = logits[0].log_softmax(-1)
    assert_close((2 * logits[1]).log_softmax(-1), normal)
    # a logit of a node moves with its own encoding
    (slope,) = torch.autograd.grad(logits[0][0, 0] - logits[0][0, 1], features)
    assert slope[0, 0].abs().sum() > 0 and slope[0, 2].abs().sum() == 0
