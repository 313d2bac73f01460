import shlex
from dataclasses import dataclass, field

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from mmrl.api import objects
from mmrl.api.arguments import is_plain, to_arguments, to_text
from mmrl.config.compose import compose
from mmrl.core.errors import ConfigError
from mmrl.objectives.policy import ClippedSurrogate
from mmrl.rewards.compose import WeightedSum
from tests.tiny_recipes import Alternating, Counting

PLAIN = ["a b", "it's", "a, [b] {c: d}", "1e-4", "null", "true", "", "C:\\x\\y", 3, -0.25, 1e-12, True, None,
         [1, "two", [None]], {"a": 1, "b_c": ["x"]}]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_a_plain_value_is_read_back_as_it_is(value):
    assert is_plain(value)
    override = OverridesParser.create().parse_override(f"key={to_text(value)}")
    assert override.value() == value


@pytest.mark.parametrize(
    "value",
    ["${seed}", "a\\'", "end\\", float("nan"), {"a b": 1}, object(), "two\nlines"],
    ids=lambda v: type(v).__name__,
)
def test_what_hydra_cannot_read_is_not_plain(value):
    assert not is_plain(value)


def test_a_mapping_sets_each_of_its_keys():
    assert list(to_arguments("trainer", {"max_epochs": 2, "callbacks": {"progress": None}})) == [
        "trainer.max_epochs=2",
        "trainer.callbacks.progress=null",
    ]


def test_a_dataclass_of_a_module_is_named_by_its_class_and_all_its_fields():
    words = list(to_arguments("task", Counting(image=True)))
    assert words[:2] == ["data.task=null", "task._target_=tests.tiny_recipes.Counting"]
    assert dict(compose(["recipe=grpo", "task=running_sums", *words]).data.task) == {
        "_target_": "tests.tiny_recipes.Counting",
        "split": "train",
        "image": True,
        "without": 0,
    }


def test_a_part_replaces_the_one_that_is_there_with_its_arguments():
    cfg = compose(["recipe=grpo", *to_arguments("reward", WeightedSum({"digits": 2.0}))])
    assert cfg.data.reward == {"_target_": "mmrl.rewards.compose.WeightedSum", "weights": {"digits": 2.0}}
    cfg = compose(["recipe=dapo_clip", *to_arguments("objective", {"terms": {"policy": ClippedSurrogate()}})])
    assert cfg.model.objective.terms.policy.clip_high == 0.2  # the recipe's is another


@dataclass(frozen=True)
class Holder:
    """A dataclass with a field that no configuration can hold."""

    inner: object = field(default_factory=object)


@pytest.mark.parametrize("part", [Alternating(), Holder()], ids=["no dataclass", "a field that is an object"])
def test_another_object_is_kept_and_named(part):
    null, word = to_arguments("reward", part)
    assert null == "data.reward=null"
    name = word.partition("=")[2].removeprefix("mmrl.api.objects.")
    kept = getattr(objects, name)
    assert issubclass(kept, type(part)) and kept() is part
    assert list(to_arguments("reward", part))[1] == word and shlex.split(word) == [word]


def test_two_objects_of_one_class_have_two_names():
    first, second = Alternating(), Alternating()
    assert objects.keep_part(first) != objects.keep_part(second)


def test_the_name_of_another_process_is_refused_with_a_remedy():
    with pytest.raises(AttributeError, match="'train' and exists in that process alone; run that program again"):
        _ = objects.train__MyTask


def test_a_class_or_function_in_place_of_a_part_is_refused():
    with pytest.raises(ConfigError, match=r"curriculum=.*: give an instance of the part"):
        list(to_arguments("curriculum", Counting))


def test_functions_and_classes_of_modules_have_a_path():
    assert objects.import_path(to_arguments) == "mmrl.api.arguments.to_arguments"
    assert objects.import_path(Counting) == "tests.tiny_recipes.Counting"
    assert objects.import_path(lambda: 0) is None
