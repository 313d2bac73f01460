"""The comparison of a checkpoint with transformers: unlisted layer types, certain policies, and failures."""

import json
import os
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    LlavaConfig,
    LlavaForConditionalGeneration,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Model,
)
from transformers.cache_utils import DynamicLayer, LinearAttentionAndFullAttentionLayer
from transformers.masking_utils import create_causal_mask

from mmrl.policies.text.fidelity import verdicts
from mmrl.policies.text.fidelity.measure import Plain, measure_differences
from mmrl.policies.text.fidelity.probe import BRANCHING, LONG, choose_length
from mmrl.policies.text.fidelity.verdicts import FidelityVerdict
from mmrl.policies.text.packing import prefix_attention
from mmrl.policies.text.packing.prefix_attention import NAME
from mmrl.policies.text.packing.prefix_sharing import PrefixSharing
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.vision import VisionLanguagePolicy
from scripts.model_sweep.checkpoints import build_checkpoint
from tests.policies.text.test_fidelity import SIZES, save, verdict_folder  # noqa: F401

# ---------------------------------------------------------------- invented layer types


class EveryToken(DynamicLayer):
    """Cache of an invented attention: keys and values of each token."""

    _layer_type = "invented_attention"


class Summary(LinearAttentionAndFullAttentionLayer):
    """Cache of an invented recurrence."""

    _layer_type = "invented_recurrence"


class Forgetful(Summary):
    """Cache of an invented recurrence whose rows all continue from the first prompt."""

    _layer_type = "forgetful_recurrence"

    def reorder_cache(self, beam_idx):
        super().reorder_cache(torch.zeros_like(beam_idx))


class Columns(DynamicLayer):
    """Cache of an invented attention whose blocks are columns of the batch."""

    _layer_type = "column_attention"


class InventedConfig(Qwen2Config):
    model_type = "invented"

    def validate(self):
        """Take any layer type."""


class InventedModel(Qwen2Model):
    config_class = InventedConfig

    def forward(self, input_ids=None, attention_mask=None, position_ids=None, **options):
        name = "cache" if "cache" in options else "past_key_values"
        embeds = self.embed_tokens(input_ids)
        causal = create_causal_mask(
            config=self.config,
            inputs_embeds=embeds,
            attention_mask=attention_mask,
            position_ids=position_ids,
            **{name: options.get(name)},
        )
        masks = dict.fromkeys(self.config.layer_types, causal)
        if "column_attention" in masks:
            masks["column_attention"] = self.cut_columns(causal, embeds, options.get(name))
        return super().forward(input_ids, attention_mask=masks, position_ids=position_ids, **options)

    def cut_columns(self, causal, embeds, cache):
        """Attend to the newest 8 columns that begin at a multiple of 8: padding moves them."""
        length = embeds.shape[1]
        past = 0 if cache is None else cache.get_seq_length()
        asks, offers = torch.arange(past, past + length)[:, None], torch.arange(past + length)
        seen = (asks // 8 == offers // 8) & (asks >= offers)
        if causal is None:
            return seen[None, None].expand(len(embeds), 1, -1, -1)
        return (causal & seen) | (asks == offers)


class InventedForCausalLM(Qwen2ForCausalLM):
    config_class = InventedConfig

    def __init__(self, config):
        super().__init__(config)
        self.model = InventedModel(config)
        self.post_init()


SCALE, SHIFT = 1000.0, 1.001  # of the norm before the output layer, and of positions


class MiscountingConfig(LlavaConfig):
    model_type = "miscounting_llava"


class MiscountingLlava(LlavaForConditionalGeneration):
    """Rows with images in one sequence have other positions, by a thousandth."""

    config_class = MiscountingConfig

    def forward(self, input_ids=None, pixel_values=None, attention_mask=None, position_ids=None, **options):
        if pixel_values is not None and (isinstance(attention_mask, dict) or attention_mask.dim() == 4):
            position_ids = position_ids * SHIFT
        return super().forward(
            input_ids, pixel_values=pixel_values, attention_mask=attention_mask, position_ids=position_ids, **options
        )


AutoConfig.register("invented", InventedConfig)
AutoModelForCausalLM.register(InventedConfig, InventedForCausalLM)
AutoConfig.register("miscounting_llava", MiscountingConfig)
AutoModelForImageTextToText.register(MiscountingConfig, MiscountingLlava)


def invent(folder, *kinds):
    """Save a tiny checkpoint with these layer types."""
    return save(folder, "invented", layer_types=list(kinds))


def test_an_unknown_layer_type_that_is_exact_is_used_without_shortcuts(tmp_path, caplog):
    policy = TextPolicy(path=invent(tmp_path / "start", "full_attention", "invented_attention"))
    assert policy.model.config._attn_implementation == "sdpa" and not policy.prefix_sharing.masks
    (record,) = caplog.records
    assert "no shortcut is taken for its layers of type invented_attention" in record.getMessage()
    assert max(measure_differences(policy, Plain("sdpa")).values()) < 1e-4


def test_an_unknown_layer_type_that_padding_changes_takes_rows_of_equal_lengths(tmp_path):
    policy = TextPolicy(path=invent(tmp_path / "start", "full_attention", "column_attention"))
    assert not policy.takes_padding
    assert max(measure_differences(policy, Plain("sdpa")).values()) < 1e-4


def test_an_unknown_layer_type_with_a_state_is_measured(tmp_path):
    assert TextPolicy(path=invent(tmp_path / "start", "full_attention", "invented_recurrence")).takes_padding


def test_an_unknown_layer_type_whose_state_is_not_selected_by_rows_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"decoding with its cache changes log-probs or entropies by \d.* nats"):
        TextPolicy(path=invent(tmp_path / "start", "full_attention", "forgetful_recurrence"))


def test_an_unknown_layer_type_without_a_cache_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=r"invented .*it fails with KeyError: 'nameless_attention'") as error:
        TextPolicy(path=invent(tmp_path / "start", "full_attention", "nameless_attention"))
    assert isinstance(error.value.__cause__, KeyError)


def test_packing_is_refused_for_an_unknown_layer_type(tmp_path):
    path = invent(tmp_path / "start", "full_attention", "invented_attention")
    with pytest.raises(ValueError, match=r"policy.pack_prompts=true needs .*invented_attention"):
        TextPolicy(path=path, pack_prompts=True)


def test_random_weights_of_a_known_type_with_unknown_layers_are_measured():
    sizes = {**SIZES, "layer_types": ["full_attention", "chunked_attention"]}
    with pytest.raises(ValueError, match=r"qwen2 .*it fails with KeyError: 'chunked_attention'"):
        TextPolicy(config={"model_type": "qwen2", **sizes})


@pytest.mark.parametrize(
    ("settings", "length"),
    [
        ({"layer_types": ["full_attention"] * 2}, LONG),
        ({"layer_types": ["invented_attention"] * 2}, BRANCHING),
        ({"layer_types": ["invented_attention"] * 2, "index_topk": 100}, 2 * 100 + LONG),
        ({"layer_types": ["invented_attention"] * 2, "index_topk": 10**9}, 4160),
        ({"num_experts": 4}, BRANCHING),
        ({"num_experts": 1}, LONG),
    ],
)
def test_the_comparison_is_long_enough_for_what_layers_choose_by_token(settings, length):
    assert choose_length(InventedConfig(**SIZES, **settings)) == length


# ---------------------------------------------------------------- policies that are certain


def certain_llava(folder):
    """A checkpoint that miscounts, and whose distributions are certain: norms before the output layer are large."""
    build_checkpoint("llava", "image", folder / "llava")
    config = MiscountingConfig(**LlavaConfig.from_pretrained(folder / "llava").to_dict())
    torch.manual_seed(0)
    model = MiscountingLlava.from_pretrained(folder / "llava", config=config)
    with torch.no_grad():
        model.model.language_model.norm.weight.mul_(SCALE)
    model.save_pretrained(folder / "start")
    AutoProcessor.from_pretrained(folder / "llava").save_pretrained(folder / "start")
    return str(folder / "start")


def test_a_certain_policy_with_images_that_shares_wrongly_is_noticed(tmp_path, caplog):
    policy = VisionLanguagePolicy(path=certain_llava(tmp_path)).eval()
    assert type(policy.model) is MiscountingLlava and not policy.prefix_sharing.masks
    assert "miscounting_llava keeps its own attention, and prompts are not shared" in caplog.text
    differences = measure_differences(policy, Plain("sdpa"))
    assert max(differences.values()) < 1e-4 and "shared" not in differences


# ---------------------------------------------------------------- failures


def test_a_failure_of_our_code_is_no_refusal_of_the_checkpoint(tmp_path, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(PrefixSharing, "mask", fail)
    with pytest.raises(ZeroDivisionError, match="ours") as error:
        TextPolicy(path=save(tmp_path / "start"))
    assert error.value.__notes__ == ["This happened while qwen2 was compared with transformers, in code of mmrl"]


def test_a_failure_of_our_attention_inside_of_the_model_is_named(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(prefix_attention, "sdpa_attention_forward", None)
    policy = TextPolicy(path=save(tmp_path / "start"))
    assert policy.model.config._attn_implementation != NAME
    assert "it fails with TypeError in prefix_attention.py, line " in caplog.text


def test_a_failure_of_the_model_is_the_cause_of_the_refusal(tmp_path, monkeypatch):
    class Broken(nn.Module):
        def forward(self, x):
            raise OverflowError("of the model")

    def load(kind, path, **options):
        model = AutoModelForCausalLM.from_pretrained(path, **options)
        model.model.norm = Broken()
        return model

    monkeypatch.setattr("mmrl.policies.text.loading.load_model", load)
    with pytest.raises(ValueError, match=r"qwen2 .*it fails with OverflowError: of the model") as error:
        TextPolicy(path=save(tmp_path / "start"))
    assert isinstance(error.value.__cause__, OverflowError)


# ---------------------------------------------------------------- stored verdicts


def test_tests_store_nothing_in_the_users_cache():
    assert Path.home() not in verdicts.cache_folder().parents


def test_the_newest_verdicts_are_kept(verdict_folder, monkeypatch):  # noqa: F811
    monkeypatch.setattr(verdicts, "ENTRIES", 3)
    for number in range(3):
        verdicts.remember(f"key{number}", FidelityVerdict(True, differences={"alone": 0.0}))
        os.utime(verdict_folder / f"key{number}.json", (number, number))
    (verdict_folder / ".key9.json.1.part").write_text("of a process that was killed")
    os.utime(verdict_folder / ".key9.json.1.part", (0, 0))
    verdicts.known.clear()
    assert verdicts.recall("key0") == FidelityVerdict(True, differences={"alone": 0.0})  # used again
    verdicts.remember("key3", FidelityVerdict(False, line="own attention"))
    assert sorted(file.name for file in verdict_folder.iterdir()) == ["key0.json", "key2.json", "key3.json"]
    verdicts.known.clear()
    assert verdicts.recall("key1") is None and verdicts.recall("key3") == FidelityVerdict(False, line="own attention")


BROKEN = [
    *("", "{", "null", "[]", "1", "{}", "{" * 9999, "\x00", '"\ud83d"'),
    *('{"shares": 1}', '{"shares": "true"}', '{"shares": true, "more": 1}', '{"shares": true, "line": null}'),
    *('{"shares": true, "differences": null}', '{"shares": true, "differences": {"alone": "0"}}'),
    '{"shares": true, "differences": {"alone": NaN}}',
]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_a_verdict_that_cannot_be_read_is_measured_and_written_again(text, verdict_folder):  # noqa: F811
    verdict_folder.mkdir()
    (verdict_folder / "key.json").write_bytes(text.encode(errors="surrogatepass"))
    assert verdicts.recall("key") is None
    verdicts.remember("key", FidelityVerdict(True))
    assert json.loads((verdict_folder / "key.json").read_text())["shares"] is True


def test_a_folder_that_cannot_be_written_changes_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(verdicts.FOLDER, str(tmp_path / "file" / "verdicts"))
    monkeypatch.setattr(verdicts, "known", {})
    verdicts.remember("key", FidelityVerdict(True))
    assert verdicts.recall("key") == FidelityVerdict(True)
