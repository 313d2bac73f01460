"""Ids that stand for images, videos and sounds cannot be sampled, wherever a configuration names them."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError
from transformers import CONFIG_MAPPING, PreTrainedConfig

from mmrl.policies.text.tokenizer import multimodal_ids
from scripts.model_sweep.checkpoints import build_checkpoint
from scripts.model_sweep.configs import causal_types, image_types

BY_HAND = {
    "llava": {"image_token_index": 17},
    "qwen2_vl": {"image_token_id": 5, "video_token_id": 6, "vision_start_token_id": 7, "vision_end_token_id": 8},
    "ovis2": {"image_token_id": 4, "visual_indicator_token_ids": [9, 10, 11, 12, 13]},
    "gemma3": {"image_token_index": 20, "boi_token_index": 21, "eoi_token_index": 22},
    "gemma3n": {"audio_token_id": 20, "boa_token_id": 21, "eoa_token_id": 22, "image_token_id": 23},
    "molmo2": {"image_patch_id": 30, "low_res_image_start_token_id": 31, "frame_end_token_id": 32},
    "hunyuan_vl": {"image_token_id": 40, "im_start_id": 41, "im_end_id": 42, "im_newline_id": 43},
    "inkling_mm_model": {"image_bos_token_id": 50, "audio_bos_token_id": 51},
    "minimax_m3_vl": {"video_token_index": 60},
}


def default(kind):
    try:
        return CONFIG_MAPPING[kind]()
    except StrictDataclassClassValidationError:  # a configuration without a valid default
        return None


@pytest.mark.parametrize("kind", BY_HAND)
def test_ids_by_hand(kind):
    config = default(kind)
    for name, value in BY_HAND[kind].items():
        setattr(config, name, value)
    config.get_text_config(decoder=True).vocab_size = 1_000_000
    stated = {i for value in BY_HAND[kind].values() for i in (value if isinstance(value, list) else [value])}
    assert stated <= set(multimodal_ids(config))


def test_every_type_of_transformers_states_its_special_ids():
    """Numbers under names of a modality and of tokens, in all that a configuration writes to its file."""
    words = ("image", "video", "vision", "visual", "audio", "frame", "boi", "eoi", "boa", "eoa")
    without = []
    for kind in image_types():
        config = default(kind)
        if config is None:
            continue
        text = config.get_text_config(decoder=True)
        text.vocab_size = 10_000_000
        stated = {i for i in _walk(config.to_dict(), words) if i >= 0}
        without += [] if stated else [kind]
        assert stated <= set(multimodal_ids(config)), kind
    assert len(without) <= 20, without  # models that read pictures by cross-attention, or name no token


def _walk(entry, words):
    for name, value in entry.items():
        if isinstance(value, dict):
            yield from _walk(value, words)
        elif set(str(name).split("_")) & set(words) and str(name).endswith(("token_id", "token_ids", "token_index")):
            yield from value if isinstance(value, list | tuple) else [value] if isinstance(value, int) else []


def test_language_models_and_ends_of_texts_stay_free():
    for kind in set(causal_types()) - set(image_types()):
        config = default(kind)
        if config is not None and kind not in ("moss_transcribe_diarize", "phi4_multimodal"):  # which hear
            assert multimodal_ids(config) == [], kind
    config = default("hunyuan_vl")
    config.im_end_id = config.get_text_config(decoder=True).eos_token_id = 2
    assert 2 not in multimodal_ids(config) and isinstance(config, PreTrainedConfig)


def test_indicators_of_ovis2_are_not_sampled(tmp_path):
    from mmrl.policies.text.vision import VisionLanguagePolicy
    from scripts.model_sweep.checks import sample_rows

    build_checkpoint("ovis2", "image", tmp_path)
    policy = VisionLanguagePolicy(path=str(tmp_path)).eval()
    indicators = policy.model.config.visual_indicator_token_ids
    assert set(indicators) <= set(policy.forbidden)
    with torch.no_grad():  # they would be the likeliest
        policy.model.get_output_embeddings().weight[indicators] *= 100
    batch, _ = sample_rows(policy, "image")
    assert not torch.isin(batch["action"], torch.tensor(indicators)).any()
    scored = policy(batch).logprobs[batch["action_mask"]]
    assert (scored - batch["behavior_logprobs"][batch["action_mask"]]).abs().max() < 1e-4
