"""Rubicon: the band of prompts by hand, and the exploit that the veto of the recipe takes out."""

from pathlib import Path

import pytest
import yaml

from mmrl.core.types import Collector, Context, Episode, Sampling
from mmrl.methods.rewards.rubicon import KeepQuantileBand
from mmrl.rewards.compose import Composition
from tasks.grammar import Grammar
from tests.tasks.replies import reply

ROOT = Path(__file__).resolve().parents[3]
TASK = Grammar(levels=[3], refusals=0.0, hole="praise")


def context(collector=None):
    services = {} if collector is None else {"collector": collector}
    return Context(TASK, None, None, Sampling(), seed=0, iteration=0, **services)


def groups_of(rewards):
    return [Episode(TASK[i], i, j, reward=r) for i, pair in enumerate(rewards) for j, r in enumerate(pair)]


def test_the_band_keeps_the_middle_of_the_group_means():
    # means 0, .25, .5, .75, 1: the quantiles .2 and .8 are .2 and .8
    episodes = groups_of([(0, 0), (0, 0.5), (0, 1), (0.5, 1), (1, 1)])
    assert [e.group for e in KeepQuantileBand()(episodes, context())] == [1, 1, 2, 2, 3, 3]
    equal = groups_of([(0, 1)] * 4)
    assert KeepQuantileBand()(equal, context()) == equal
    assert KeepQuantileBand()([], context()) == []


def test_the_band_is_that_of_all_processes():
    class Gathered(Collector):
        def gather(self, items):
            return [*items, 0.6, 0.7, 0.8, 0.9, 1.0]

    episodes = groups_of([(0, 0), (0.8, 0.8)])
    assert [e.group for e in KeepQuantileBand()(episodes, context(Gathered()))] == [1, 1]


@pytest.mark.parametrize("bounds", [(0.8, 0.2), (0.5, 0.5), (-0.1, 0.5)])
def test_wrong_bands_are_refused(bounds):
    with pytest.raises(ValueError, match="keep_quantile_band"):
        KeepQuantileBand(*bounds)


def test_praise_pays_without_the_veto_and_nothing_with_it():
    """The aggregation of the recipe's second stage, with numbers by hand."""
    text = (ROOT / "conf/recipe/rewards/rubicon.yaml").read_text()
    vetoes = yaml.safe_load(text)["data"]["reward"]["vetoes"]
    method = yaml.safe_load((ROOT / "conf/method/rewards/rubicon.yaml").read_text())["data"]["reward"]
    options = {name: value for name, value in method.items() if name != "_target_"}
    plain = Composition({"format": 0.2, "proxy": 1.0}, **options)
    vetoed = Composition({"format": 0.2, "proxy": 1.0}, vetoes=vetoes, **options)
    prompt = TASK[0]
    half = next(text for text in ("bada", "kike", "bi", "dadada") if 0 < TASK.score(reply(prompt, text))["met"] < 1)
    honest, exploit = ([episode] for episode in (reply(prompt, half), reply(prompt, f"{half}yyyy")))
    for (episode,) in (honest, exploit):
        episode.scores = TASK.score(episode)
    met = honest[0].scores["met"]
    assert plain(honest) == vetoed(honest) == pytest.approx([(0.2 * 0.85 + met) / 1.2])
    assert plain(exploit) == pytest.approx([0.85 / 1.2]) and vetoed(exploit) == [0.0]
    assert plain(exploit) > plain(honest)
