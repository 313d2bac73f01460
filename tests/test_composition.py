"""Parts drawn at random: whatever meets is either refused with a reason or learns for an iteration.

A draw is a policy with the recipe that it is used in, a rollout, what writes advantages, a surrogate, a weighting, a
regulariser and a curriculum, from everything that the examples of the laws and the groups of the configuration name,
and a transform of episodes, one of rows, a schedule and settings of the sampling, from those of all methods, recipes
and starts.
"""

import dataclasses
import math
import random
import traceback
from pathlib import Path

import pytest
import yaml
from hydra.utils import get_class
from omegaconf import OmegaConf

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, groups, to_lightning
from mmrl.config.signatures import constructor_parameters
from mmrl.core.columns import COLLATED
from mmrl.core.errors import ConfigError
from mmrl.objectives.objective import Term
from tests.laws.law_examples import ANNOTATORS, TERMS, WEIGHTINGS
from tests.test_recipes import words_of

ROOT = Path(__file__).parent.parent
BASES = ("grpo", "grpo_digits_vlm", "demo_vla", "flow_sde_grpo", "ppo_control")
"""One recipe for every kind of policy: text, text with images, action tokens, flow, state vectors."""
OWN_FILES = {"curriculum": {"fixed": ["curriculum.count=4"], "stratified": ["curriculum.counts={reach: 4}"]}}
DRAWS, SHARD = 200, 12


def spec(part):
    """A part as a configuration."""
    arguments = {f.name: getattr(part, f.name) for f in dataclasses.fields(part) if f.init}
    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in arguments.items()}
    return {"_target_": f"{type(part).__module__}.{type(part).__qualname__}", **plain}


def parts(examples, keep):
    return [e.part for e in examples if dataclasses.is_dataclass(e.part) and keep(e.part)]


ADVANTAGES = parts(ANNOTATORS, lambda part: "advantages" in part.writes())
SURROGATES = parts(TERMS, lambda part: "advantages" in part.reads())
REGULARISERS = [None, *parts(TERMS, lambda part: "advantages" not in part.reads())]
OTHER = {type(e.part): e.part for e in ANNOTATORS if "advantages" not in e.part.writes()}


LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the second one takes seconds
FILES = [yaml.load(path.read_text(), LOADER) for group in ("method", "recipe", "start")
         for path in sorted((ROOT / "conf" / group).rglob("*.yaml"))]  # fmt: skip


def settings_of_files(name):
    """What methods, recipes and starts have in this group of data, without what refers to the rest of a run."""
    groups = [(keys.get("data") or {}).get(name) or {} for keys in FILES]
    return [node for node in groups if node and "${" not in str(node)]


def single(nodes):
    """The parts of these groups, each once."""
    found = [part for node in nodes for part in node.values() if part and "_target_" in part]
    return [part for number, part in enumerate(found) if part not in found[:number]]


TRANSFORMS = single(settings_of_files("transforms"))
ROW_TRANSFORMS = single(settings_of_files("rows"))
SAMPLINGS = [node for node in settings_of_files("sampling") if set(node) != {"max_tokens"} or "_target_" in str(node)]
SCHEDULES = {
    "data.sampling.temperature": {"_target_": "mmrl.schedules.Linear", "start": 1.0, "end": 0.5, "iterations": 4},
    "data.sampling.top_p": {"_target_": "mmrl.schedules.Cosine", "start": 1.0, "end": 0.9, "iterations": 4},
    "data.group_size": {"_target_": "mmrl.schedules.Alternating", "values": [2, 4], "iterations": 1},
    "model.objective.coefficients.surrogate": {
        "_target_": "mmrl.schedules.Piecewise",
        "values": {0: 0.0, 1: 1.0},
        "steps": True,
    },
    "model.objective.coefficients.regulariser": {
        "_target_": "mmrl.schedules.EntropyBand",
        "start": 0.01,
        "low": 0.5,
        "high": 1.0,
    },
}


def draw_settings_of_the_loop(config, rng):
    """Sets a transform, a row transform, a schedule and the sampling, each in a part of the draws; returns them."""
    transform, rows, sampling, schedule = (
        rng.choice(choices) if rng.random() < share else None
        for choices, share in ((TRANSFORMS, 0.3), (ROW_TRANSFORMS, 0.2), (SAMPLINGS, 0.2), (sorted(SCHEDULES), 0.5))
    )
    for name, part in (("transforms", transform), ("rows", rows)):
        if part is not None:
            OmegaConf.update(config, f"data.{name}", {"drawn": part}, merge=True, force_add=True)
    if sampling is not None:
        OmegaConf.update(config, "data.sampling", sampling, merge=True, force_add=True)
    term = (schedule or "").rpartition("coefficients.")[2]
    if schedule is not None and (term == schedule or term in config.model.objective.terms):
        OmegaConf.update(config, schedule, SCHEDULES[schedule], merge=False, force_add=True)
    return [transform and transform["_target_"], rows and rows["_target_"], sampling, schedule]


def drawn(number, folder):
    """The configuration of one draw, and what was drawn in words."""
    rng = random.Random(number)
    base = rng.choice(BASES)
    # mostly the rollout and the curriculum that the recipe is used with: any other is seldom wired
    rollout = rng.choice(groups()["rollout"]) if rng.random() < 0.25 else None
    curriculum = rng.choice(groups()["curriculum"]) if rng.random() < 0.25 else None
    words = words_of(base, folder)
    for group, choice in (("rollout", rollout), ("curriculum", curriculum)):
        if choice is not None:
            words = [f"{group}={choice}", *words, *OWN_FILES.get(group, {}).get(choice, [])]
    config = compose(words)
    config.model.reference = rng.random() < 0.9
    if "value_head" in constructor_parameters(get_class(config.model.policy._target_)):
        config.model.policy.value_head = rng.random() < 0.9
    fits = fitting(config) if rng.random() < 0.8 else lambda part: True  # else anything with anything
    weighting = rng.choice([e.part for e in WEIGHTINGS])
    advantage, surrogate, regulariser = (
        rng.choice([part for part in parts if part is None or fits(part)])
        for parts in (ADVANTAGES, SURROGATES, REGULARISERS)
    )
    terms = {"surrogate": surrogate} | ({} if regulariser is None else {"regulariser": regulariser})
    before = suppliers(set(advantage.reads()).union(*(term.reads() for term in terms.values())), fits, rng)
    config.data.annotators = {**{name: spec(part) for name, part in before.items()}, "advantage": spec(advantage)}
    config.data.pipeline = list(config.data.annotators)
    config.data.weighting = spec(weighting)
    config.model.objective = {
        "_target_": "mmrl.objectives.objective.Objective",
        "terms": {name: spec(term) for name, term in terms.items()},
    }
    loop = draw_settings_of_the_loop(config, rng)
    reported = (base, rollout, curriculum, list(before), advantage, surrogate, weighting, regulariser, *loop)
    return config, " | ".join(str(each) for each in reported)


def fitting(config):
    """Whether a part's columns can be had from this policy, by whatever annotators, and what it needs of its output."""
    policy = config.model.policy
    kind, arguments = get_class(policy._target_), OmegaConf.to_container(policy, resolve=True)
    arguments.pop("_target_")
    needs = kind.predicts(arguments)
    columns = COLLATED | kind.provides(arguments)

    def fits(part):
        further = part.others() if isinstance(part, Term) else part.contexts()
        return part.reads() <= columns and part.needs() <= needs and not further

    for _ in OTHER:
        columns = columns.union(*(part.writes() for part in OTHER.values() if fits(part)))
    columns |= {"advantages"}
    return fits


def suppliers(wanted, fits, rng):
    """Annotators that write what is read, one for each column, one that fits if there is one; now and then none."""
    result, columns = {}, sorted(wanted - COLLATED)
    while columns:
        column = columns.pop()
        writers = [part for part in OTHER.values() if column in part.writes()]
        annotator = next((part for part in writers if fits(part)), next(iter(writers), None))
        name = "" if annotator is None else type(annotator).__name__
        if annotator is None or name in result or rng.random() < 0.05:
            continue
        result[name] = annotator
        columns += sorted(annotator.reads() - COLLATED)
    return dict(reversed(result.items()))


def outcome(number, folder):
    """'wired', or the reason of a refusal; anything else is an error of ours and is raised."""
    config, reported = drawn(number, folder)
    try:
        cli = CLI(to_lightning(config))
        cli.fit()
    except ConfigError as refused:
        return str(refused)
    except (ValueError, KeyError, NotImplementedError) as refused:
        frame = traceback.extract_tb(refused.__traceback__)[-1]
        assert Path(frame.filename).is_relative_to(ROOT), f"{reported}: refused by {frame}, not by us: {refused}"
        return str(refused)
    except BaseException as error:
        error.add_note(f"draw {number}: {reported}\n{OmegaConf.to_yaml(config.data.annotators)}")
        raise
    for name, value in cli.trainer.callback_metrics.items():
        assert math.isfinite(value) or not name.startswith("train/"), f"draw {number}: {reported}: {name} = {value}"
    return "wired"


@pytest.mark.parametrize("number", range(SHARD))
def test_parts_that_meet_are_wired_or_refused_with_a_reason(number, tmp_path):
    assert len(outcome(number, tmp_path)) >= len("wired")


@pytest.mark.slow
def test_two_hundred_draws(tmp_path):
    """And enough of them are wired for this to mean something."""
    result = [outcome(number, tmp_path / str(number)) for number in range(DRAWS)]
    wired = result.count("wired")
    reasons = {reason[:100] for reason in result if reason != "wired"}
    assert all(len(reason) > 20 for reason in reasons)
    assert wired >= DRAWS // 4, f"{wired} wired; refused: {sorted(reasons)}"
