"""COS(M+O)S: curiosity and UCT by hand, values from ratings, trees of stories, ORPO's numbers, and the rounds."""

import copy
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.schedule import list_steps
from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.types import Collector, Context, Episode, PolicyOutput, Sampling, Turn
from mmrl.methods.search.cosmos.search import StorySearch, select_siblings, uct
from mmrl.methods.search.cosmos.value import StoryValue, index_surprise, read_coherence
from mmrl.objectives.preference import ORPOLoss
from mmrl.rewards.judges.questions import Reply, Unreadable
from mmrl.rewards.judges.scripted import ScriptedJudge
from mmrl.rollouts.base import text_observation
from mmrl.rollouts.offline.demonstrations import demonstrated_choices
from mmrl.rollouts.text.transcript import Transcript
from mmrl.rollouts.trees.node import StepNode
from tasks.grammar.stories import Stories
from tests.rollouts.text.test_tools import POLICY

TASK = Stories()
JUDGE = ScriptedJudge("tasks.grammar.stories:judge_coherence")


def test_curiosity_is_an_inverted_u_by_hand():
    """exp(-2^2 / 2) = .135335 two nats from the peak on either side."""
    assert [index_surprise(s, 3.0) for s in (1, 3, 5)] == pytest.approx([0.135335, 1, 0.135335], abs=1e-6)
    assert index_surprise(2.0, 3.0, width=0.5) == pytest.approx(0.135335, abs=1e-6)


def test_uct_by_hand():
    """.6 + 1.4 sqrt(2.302585 / 3) and .5 + 1.4 sqrt(2.302585): the one that was visited less is chosen."""
    assert uct(0.6, 3, 10) == pytest.approx(1.826522, abs=1e-6)
    assert uct(0.5, 1, 10) == pytest.approx(2.624398, abs=1e-6)
    assert uct(0.0, 0, 1) == float("inf")


@pytest.mark.parametrize(("rejected", "loss"), [(-1.0, 0.425172), (-0.4, 0.4 + 0.1 * 0.693147)])
def test_orpo_of_siblings_by_hand(rejected, loss):
    """m_w = -.4 and m_l = -1: log odds .6 - (log .329680 - log .632121) = 1.250958, whose -log sigmoid is .251716;
    .4 + .1 * .251716. Equal rows have log 2."""
    logprobs = torch.tensor([[-9.0, -0.4], [-9.0, rejected]])
    batch = Batch(
        action_mask=torch.tensor([[False, True]] * 2),  # the step before is context
        group=torch.zeros(2, dtype=torch.long),
        preference=torch.tensor([1.0, -1.0]),
    )
    loss_of = ORPOLoss(beta=0.1)(PolicyOutput(logprobs, torch.zeros(2, 2)), batch)
    assert loss_of.tolist() == pytest.approx([loss, loss], abs=1e-5)


def test_a_value_finds_the_hidden_peak_in_ratings():
    """Ratings .2 + .5 U(s) + .3 c with a peak at 1.5 nats: surprisals on a grid whose quantiles have it."""
    s = np.repeat(np.linspace(0.5, 2.5, 21), 2)
    c = np.tile([0.0, 1.0], 21)
    spread = float(s.std())
    ratings = [0.2 + 0.5 * index_surprise(x, 1.5, spread) + 0.3 * y for x, y in zip(s, c)]
    value = StoryValue.fit(s, c, ratings)
    assert value.best == pytest.approx(1.5) and value.width == pytest.approx(spread)
    assert value.weights == pytest.approx((0.2, 0.5, 0.3), abs=1e-6)
    assert value(1.5, 1.0) == pytest.approx(1.0) and value(0.5, 0.0) < value(1.5, 0.0) > value(2.5, 0.0)
    with pytest.raises(ValueError, match="at least 4"):
        StoryValue.fit([1.0], [1.0], [1.0])


def test_a_judge_is_read():
    assert [read_coherence(Reply(text)) for text in ("10", "quite, so 7.5", "of 10 it has 3")] == [1, 0.75, 0.3]
    with pytest.raises(Unreadable):
        read_coherence(Reply("good"))


def node(value, *children):
    """A node with this Q and children."""
    here = StepNode(Transcript({}, 0), value=value)
    for child in children:
        child.parent = here
        here.children.append(child)
    return here


def test_siblings_by_hand():
    """The root has .9 and .1 (gap .8), the best of them .5 and .45, too near, and the other .8, .1 and .4 (gap .7)."""
    root = node(0, node(0.9, node(0.5), node(0.45)), node(0.1, node(0.8), node(0.1), node(0.4)))
    gaps = [(best.value, worst.value) for best, worst in select_siblings(root)]
    assert gaps == [(0.9, 0.1), (0.8, 0.1)] and len(select_siblings(root, count=1)) == 1
    assert len(select_siblings(root, gap=0.01)) == 3 and select_siblings(root, gap=0.85) == []


@dataclass
class Writer:
    """An engine that writes sentences in turn, of which each is linked by its first letter; the last one ends."""

    sentences: tuple = ("baba", "bede", "biki", "kaba")

    def __post_init__(self):
        self.calls = 0

    def sample(self, requests, sampling):
        out = []
        for request in requests:
            text = self.sentences[self.calls % len(self.sentences)]
            self.calls += 1
            before = 0 if request.prefix is None else POLICY.decode(request.prefix.tolist()).count(" ")
            is_last = before == 3 or " " not in sampling.stop
            if is_last and before == 0 and " " not in sampling.stop:
                text = " ".join([text] * 4)
            ids = POLICY.encode_demonstration(request.observation, text if is_last else f"{text} ")
            ids = ids if is_last else ids[:-1]
            out.append(demonstrated_choices(ids, POLICY.encode(request.observation), text))
        return out


def context(engine=None, **changes):
    ctx = Context(TASK, engine or Writer(), POLICY, Sampling(max_tokens=24), 0, 0, models={"base": POLICY})
    return replace(ctx, collector=Silent(), **changes)


class Silent(Collector):
    """Scores that the search does not read."""

    def score(self, episodes):
        for episode in episodes:
            episode.reward = 0.0


def test_features_are_those_of_the_base_model_without_the_end():
    """Against transformers' own log-probabilities of the letters behind the prompt; large weights make them differ."""
    raw, base = text_observation(TASK[0]), copy.deepcopy(POLICY)
    torch.nn.init.normal_(base.model.get_output_embeddings().weight, generator=torch.Generator().manual_seed(0))
    ((surprisal, coherence),) = StorySearch(judge=JUDGE).measure([(raw, "baba bede")], context(models={"base": base}))
    (prompt,) = POLICY.encode(raw).values()
    ids = torch.cat([prompt, POLICY.encode_demonstration(raw, "baba bede")[:-1]])[None]
    with torch.no_grad():
        logprobs = base.model(input_ids=ids).logits[0].log_softmax(-1)
    places = range(len(prompt), ids.shape[1])
    assert surprisal == pytest.approx(-sum(float(logprobs[t - 1, ids[0, t]]) for t in places) / len(places), rel=1e-4)
    assert coherence in (0.7, 1.0)  # three or two links of three, by the opening


class Curious(StorySearch):
    """Values surprise alone, which also the texts of random weights have."""

    def fit_value(self, ctx):
        return StoryValue(1.0, 1.0, (0.0, 1.0, 0.0))


def search(**options):
    sizes = {"iterations": 8, "width": 3, "depth": 4, "split": " ", "rated": 8, "gap": 0.0}
    rollout = StorySearch(judge=JUDGE, **{**sizes, **options})
    rollout.value = StoryValue(1.0, 1.0, (0.0, 0.0, 1.0))
    return rollout


def test_a_tree_gives_pairs_of_steps_by_their_values():
    rows = search().collect([(2, TASK[0])], context())
    pairs = [rows[k : k + 2] for k in range(0, len(rows), 2)]
    assert pairs and rows[0].info["counts"] == {"tree/pairs": len(pairs), "tree/searched": 1}
    for number, (best, worst) in enumerate(pairs):
        assert best.group == worst.group == 16 + number
        assert [float(row.turns[0].completion.extra["preference"]) for row in (best, worst)] == [1, -1]
        done = [row.turns[0].completion for row in (best, worst)]
        start = [int(each.action_mask.float().argmax()) for each in done]
        # siblings have the same steps before, of five tokens each, which are not trained on
        assert start[0] == start[1] and start[0] % 5 == 0
        assert torch.equal(done[0].action[: start[0]], done[1].action[: start[0]])
        texts = [POLICY.decode(each.action.tolist()) for each in done]
        judged = [float(JUDGE._call(f"x\n{' '.join(prompt_sentences())} {text}")) for text in texts]
        assert judged[0] >= judged[1] or start[0] < 15  # of last steps Q is the value itself


def prompt_sentences():
    return TASK[0].info["opening"]


def test_a_search_returns_its_best_story():
    (story,) = search(returns="story", width=4).collect([(0, TASK[0])], context())
    assert story.ended == "done" and str(story.output).count(" ") == 3 and story.group == 0
    # eight iterations end above the last sentence: the path of highest Q is written on, with a linked one
    # among the four sentences at each step
    assert JUDGE._call(f"x\n{story.output}") == "10"
    single = Writer(("baba",))
    (same,) = search(returns="story").collect([(0, TASK[0])], context(single))
    assert same.output == "baba baba baba baba"


def test_the_value_is_fitted_to_ratings_before_the_first_tree():
    """A higher rating of linked stories gives coherence a weight above 0; a checkpoint has the value."""
    rollout = StorySearch(iterations=2, width=2, depth=4, split=" ", judge=JUDGE, rated=12, rating="linked", gap=0.0)
    assert rollout.metrics() == {}
    rollout.collect([(0, TASK[0])], context())
    assert rollout.metrics()["story/coherence"] > 0
    other = StorySearch()
    other.load_state_dict(rollout.state_dict())
    assert other.value == rollout.value
    with pytest.raises(ConfigError, match=r"rollout\.rating='taste'"):
        StorySearch(rated=4, rating="taste").collect([(0, TASK[0])], context())


def test_a_missing_base_and_wrong_options_are_refused():
    with pytest.raises(ConfigError, match=r"rollout\.base='base'.*frozen_models"):
        StorySearch().measure([(text_observation(TASK[0]), "baba")], context(models={}))
    for options, message in (
        ({"returns": "best"}, "pairs or story"),
        ({"question": "?"}, "story"),
        ({"rated": 2}, "rated"),
    ):
        with pytest.raises(ValueError, match=message):
            StorySearch(**options)


def test_rounds_search_and_learn_in_turn():
    steps = {step.name: step for step in list_steps(read_rounds(["cosmos"]))}
    assert [name for name, step in steps.items() if step.kind == "fit"] == ["0/writer", "1/orpo-1", "2/orpo-1"]
    assert steps["2/orpo-1"].weights == "1/orpo-1" and steps["2/measure"].weights == "2/orpo-1"
    assert steps["2/orpo-1"].folders == ("0/writer",)  # surprise is that of the start


def test_scores_of_stories_by_hand():
    """`baba baba baba baba` behind `.. ..b.`: the drawn letters are a b a, of -log .7 each, .356675 nats."""
    task = Stories(best=0.356675, width=0.5)
    prompt = replace(task[0], info={"opening": ["kaka", "kaba"]})

    def score(text):
        return task.verify(text, prompt)

    assert score("baba baba baba baba") == pytest.approx({"quality": 1, "linked": 1, "surprise": 0.356675, "exact": 1})
    broken = score("baba dada baba baba")
    assert broken["linked"] == 0.5 and broken["quality"] < 0.5  # two of four links; d is rarer than b
    assert score("baba baba")["quality"] == 0 == score("baba baba baba babx")["quality"]
    far = Stories(best=1.356675, width=0.5).verify("baba baba baba baba", prompt)
    assert far["quality"] == pytest.approx(np.exp(-2))  # one nat is two widths


def test_openings_are_linked_and_split():
    task = Stories(count=120, held_out=40)
    for index in range(40):
        first, second = task[index].info["opening"]
        assert first[-2] == second[0]
        assert task.score(Episode(task[index], 0, 0, [Turn(answer(task.demonstrate(index)))]))["exact"] == 1
    openings = [{each.split_key(each.problem(i)) for i in range(len(each))} for each in (task, task.on("held_out"))]
    assert not openings[0] & openings[1]


def answer(text):
    ids = torch.zeros(1, dtype=torch.long)
    return demonstrated_choices(ids, {}, text)
