"""Checkpoints that continue no text are refused by their configuration; what processors give reaches the model."""

import json
import re

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForSequenceClassification

from mmrl.policies.text.fidelity.failures import format_failure
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.vision import VisionLanguagePolicy
from scripts.model_sweep.checkpoints import build_checkpoint
from scripts.model_sweep.letters import Letters

SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(scope="module")
def llava():
    return VisionLanguagePolicy(
        config={
            "text_config": SIZES | {"model_type": "qwen2"},
            "vision_config": SIZES | {"image_size": 16, "patch_size": 8},
        }
    )


@pytest.mark.parametrize("kind", ["bart", "whisper", "musicgen", "pegasus", "mbart"])
def test_encoder_decoders_are_no_text_policies(kind, tmp_path):
    CONFIG_MAPPING[kind]().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"policy: {kind} is no policy that writes text: it is an encoder-decoder"):
        TextPolicy(path=str(tmp_path))


@pytest.mark.parametrize("kind", ["florence2", "pix2struct", "pp_formulanet", "t5gemma2", "udop"])
def test_encoder_decoders_are_no_vision_language_policies(kind, tmp_path):
    CONFIG_MAPPING[kind]().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"policy: {kind} is no policy that writes text: it is an encoder-decoder"):
        VisionLanguagePolicy(path=str(tmp_path))


def test_a_class_that_writes_no_tokens_is_no_policy(tmp_path):
    CONFIG_MAPPING["pi0"]().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"pi0 is no policy that writes text: its class PI0For.* writes no tokens"):
        VisionLanguagePolicy(path=str(tmp_path))


@pytest.mark.parametrize("kind", ["emu3", "mllama"])
def test_the_text_part_of_an_image_text_type_has_no_class_of_its_own(kind, tmp_path):
    CONFIG_MAPPING[kind]().get_text_config().save_pretrained(tmp_path)
    message = f"policy: {kind}_text_model has no class in transformers' AutoModelForCausalLM.*with policy=vlm"
    with pytest.raises(ValueError, match=message):
        TextPolicy(path=str(tmp_path))


def test_weights_that_are_missing_come_with_the_class_that_saved_the_others(tmp_path):
    policy = TextPolicy(config=SIZES | {"tie_word_embeddings": False})
    policy.save_pretrained(tmp_path)
    config = policy.model.config
    AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path)
    message = r"lacks 1 weights, the first of them lm_head.weight; it was saved by Qwen2ForSequenceClassification, and "
    with pytest.raises(ValueError, match=message + "Qwen2ForCausalLM is loaded here"):
        TextPolicy(path=str(tmp_path))


def test_a_failure_without_words_has_its_place():
    def fail():
        assert len("") > 0

    with pytest.raises(AssertionError) as error:
        fail()
    bare = AssertionError().with_traceback(error.value.__traceback__)
    line = fail.__code__.co_firstlineno + 1
    expected = rf"AssertionError in test_other_tasks\.py, line {line}: assert len\(\"\"\) > 0"
    assert re.fullmatch(expected, format_failure(bare))


def test_a_model_that_is_no_stack_of_layers_is_refused(tmp_path):
    build_checkpoint("blt", "text", tmp_path)
    with pytest.raises(ValueError, match="the configuration of blt has no hidden_size, so it is no stack of layers"):
        TextPolicy(path=str(tmp_path))


def test_a_processor_without_a_chat_template_is_refused_when_it_is_loaded(llava, tmp_path):
    llava.save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    for file in tmp_path.glob("*tokenizer_config.json"):
        file.write_text(json.dumps({k: v for k, v in json.loads(file.read_text()).items() if k != "chat_template"}))
    with pytest.raises(
        ValueError, match="cannot be loaded: its processor has no chat template, which says where images"
    ):
        VisionLanguagePolicy(path=str(tmp_path))


class Broken:
    """A processor of others that changes what comes out of it."""

    def __init__(self, processor, change):
        self.processor, self.change = processor, change

    def __getattr__(self, name):
        return getattr(self.processor, name)

    def __call__(self, **arguments):
        return self.change(dict(self.processor(**arguments)))


def divide_by_nothing(features):
    return 1 // 0


PROCESSORS = {
    "no ids": (lambda x: {"pixel_values": x["pixel_values"]}, "gives no input_ids, but only pixel_values"),
    "nothing": (lambda x: {}, "gives no input_ids, but only an empty result"),
    "no picture": (
        lambda x: {name: x[name] for name in ("input_ids", "attention_mask")},
        r"gives nothing of 1 image\(s\), but only input_ids, attention_mask",
    ),
    "empty ids": (lambda x: x | {"input_ids": torch.zeros(1, 0)}, r"gives input_ids of shape \[0\] and type"),
    "ids without rows": (lambda x: x | {"input_ids": x["input_ids"][0]}, r"gives input_ids of shape \[\] and type"),
    "ids that are no numbers": (lambda x: x | {"input_ids": [["a"]]}, "gives 'input_ids' as list, not as numbers"),
    "floats": (lambda x: x | {"input_ids": x["input_ids"] / 2}, "and type torch.float32 for one prompt, not a row"),
    "an error": (divide_by_nothing, "cannot encode a prompt with an image: ZeroDivisionError: integer division"),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_a_processor_of_others_is_tried_when_it_is_loaded(name, llava, tmp_path_factory, monkeypatch):
    change, message = PROCESSORS[name]
    path, load = tmp_path_factory.getbasetemp() / "llava_of_processors", VisionLanguagePolicy.load_processor
    if not path.exists():
        llava.save_pretrained(path)
    monkeypatch.setattr(VisionLanguagePolicy, "load_processor", lambda self, path: Broken(load(self, path), change))
    with pytest.raises(ValueError, match=rf"^policy\.path='{path}': its processor.*{message}"):
        VisionLanguagePolicy(path=str(path))


def test_what_a_processor_gives_becomes_a_tensor_of_the_models_precision(llava):
    pixels = llava._convert_input("pixel_values", torch.ones(2, 3, dtype=torch.bfloat16))
    assert pixels.dtype == torch.float32 and pixels.tolist() == [[1.0] * 3] * 2
    assert llava._convert_input("grids", [[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert llava._convert_input("counts", torch.tensor([2])).dtype == torch.int64
    for odd in ([[1], [2, 3]], ["a"], [None]):
        with pytest.raises(ValueError, match="its processor gives 'grids' as list, not as numbers of equal shape"):
            llava._convert_input("grids", odd)


def test_a_prompt_that_a_processor_refuses_is_named(tmp_path):
    build_checkpoint("pp_chart2table", "image", tmp_path)
    policy, task = VisionLanguagePolicy(path=str(tmp_path)), Letters(images=1)
    assert "pixel_values" in policy.encode(task[0].observation)
    with pytest.raises(ValueError, match=r"its processor cannot encode a prompt with 0 image\(s\): Both `images` and"):
        policy.encode(task[1].observation)
