"""A checkpoint is compared with plain transformers when it is loaded: exact, with its own attention, or refused."""

import json
import re

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from mmrl.policies.text.architecture import find_switch
from mmrl.policies.text.fidelity import check, verdicts
from mmrl.policies.text.fidelity.measure import Plain, measure_differences, use_attention
from mmrl.policies.text.fidelity.probe import row_inputs, sample_probe
from mmrl.policies.text.loading import remove_noise
from mmrl.policies.text.packing.prefix_attention import NAME
from mmrl.policies.text.packing.prefix_sharing import PrefixSharing
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.tiny import character_tokenizer, special_ids
from mmrl.policies.text.vision import VisionLanguagePolicy
from scripts.model_sweep.checkpoints import build_checkpoint, build_model
from scripts.model_sweep.processors import build_processor

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "num_key_value_heads": 4,
}


@pytest.fixture(autouse=True)
def verdict_folder(tmp_path, monkeypatch):
    """Verdicts of this test alone."""
    monkeypatch.setenv(verdicts.FOLDER, str(tmp_path / "verdicts"))
    monkeypatch.setattr(verdicts, "known", {})
    return tmp_path / "verdicts"


def save(folder, kind="qwen2", factor=4.0, **settings):
    """Save a tiny checkpoint with decided random weights."""
    tokenizer = character_tokenizer()
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**SIZES, **special_ids(tokenizer), **settings})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(factor if weight.dim() > 1 else 1.0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("kind", ["falcon", "gemma4_text", "diffllama"])
def test_models_whose_own_code_names_their_attention_keep_it(kind, tmp_path, caplog):
    build_checkpoint(kind, "text", tmp_path / "start")
    policy = TextPolicy(path=str(tmp_path / "start"))
    config = policy.model.config.get_text_config(decoder=True)
    assert config._attn_implementation == "sdpa" and not policy.prefix_sharing.masks
    assert f"{config.model_type} keeps its own attention, and prompts are not shared" in caplog.text
    differences = measure_differences(policy, Plain("sdpa"))
    assert set(differences) == {"positions", "sampled", "padded", "alone", "trained"}
    assert max(differences.values()) < 1e-4


@pytest.mark.parametrize("kind", ["qwen2", "llama", "gemma3_text", "mixtral", "gpt2"])
def test_models_that_share_prompts_exactly_do(kind, tmp_path, caplog):
    build_checkpoint(kind, "text", tmp_path / "start")
    policy = TextPolicy(path=str(tmp_path / "start"))
    assert policy.model.config.get_text_config(decoder=True)._attn_implementation == NAME and not caplog.records
    differences = measure_differences(policy, Plain("sdpa"))
    assert "shared" in differences and max(differences.values()) < 1e-4


@pytest.mark.parametrize("kind", ["bart", "roformer", "deepseek_v4"])
def test_models_that_padding_changes_take_rows_of_equal_lengths(kind, tmp_path, caplog):
    build_checkpoint(kind, "text", tmp_path / "start")
    policy = TextPolicy(path=str(tmp_path / "start"))
    assert not policy.takes_padding and not policy.prefix_sharing.masks
    assert re.search(r"beside rows of the same length alone: with padding, .* by [\d.]+ nats", caplog.messages[-1])
    differences = measure_differences(policy, Plain(check.get_attention(policy.model)))
    assert max(differences.values()) < 1e-4


def test_models_whose_positions_are_their_own_are_refused_with_the_number(tmp_path):
    build_checkpoint("roberta", "text", tmp_path / "start")
    with pytest.raises(ValueError, match=r"roberta computes something else here than in transformers alone: .* nats"):
        TextPolicy(path=str(tmp_path / "start"))


@pytest.mark.parametrize("kind", ["xlnet", "openai-gpt", "cpmant"])
def test_models_whose_code_fails_are_refused_by_name(kind, tmp_path):
    build_checkpoint(kind, "text", tmp_path / "start")
    with pytest.raises(ValueError, match=rf"policy.*{kind}.*it fails with \w+Error"):
        TextPolicy(path=str(tmp_path / "start"))


def test_a_wrong_mask_is_found_and_not_used(tmp_path, monkeypatch, caplog):
    def see_everything(self, completion, depth, owner):
        return torch.ones(len(owner), 1, owner.shape[1], owner.shape[1], dtype=torch.bool).tril()

    monkeypatch.setattr(PrefixSharing, "mask", see_everything)
    policy = TextPolicy(path=save(tmp_path / "start"))
    assert not policy.prefix_sharing.masks and "completions in one sequence with their prompt" in caplog.text


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("mixtral", {"router_jitter_noise": 0.5, "num_local_experts": 4, "num_key_value_heads": 4}),
        ("gpt2", {"resid_pdrop": 0.5, "embd_pdrop": 0.5, "attn_pdrop": 0.5, "n_inner": 64}),
        ("opt", {"dropout": 0.5, "layerdrop": 0.5, "ffn_dim": 64, "word_embed_proj_dim": 32}),
        ("qwen2", {"attention_dropout": 0.5, "num_key_value_heads": 4}),
        ("phi", {"resid_pdrop": 0.5, "embd_pdrop": 0.5, "attention_dropout": 0.5}),
    ],
)
def test_the_learning_pass_draws_no_noise(kind, settings, tmp_path):
    policy = TextPolicy(path=save(tmp_path / "start", kind, **settings))
    assert measure_differences(policy, Plain("sdpa"))["trained"] < 1e-4


class Shaking(torch.nn.Module):
    """Multiplies by random numbers in training mode, under a name that nobody knows."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.wobble = inner, 0.5

    def forward(self, x):
        return self.inner(x) * (1 + self.wobble * torch.rand_like(x)) if self.training else self.inner(x)


def test_noise_of_an_unknown_name_is_refused(tmp_path, monkeypatch):
    def shake(model):
        model.model.norm = Shaking(model.model.norm)
        return remove_noise(model)

    monkeypatch.setattr("mmrl.policies.text.loading.remove_noise", shake)
    with pytest.raises(ValueError, match=r"training mode .it draws noise"):
        TextPolicy(path=save(tmp_path / "start"))


def test_loading_draws_nothing_from_the_random_state(tmp_path):
    path = save(tmp_path / "start")
    torch.manual_seed(1)
    before = torch.get_rng_state()
    TextPolicy(path=path)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_checkpoint_is_measured_once_and_again_when_its_weights_change(tmp_path, monkeypatch, verdict_folder):
    path, calls = save(tmp_path / "start"), []

    def count(*arguments):
        calls.append(arguments)
        return measure_differences(*arguments)

    monkeypatch.setattr(check, "measure_differences", count)
    TextPolicy(path=path), TextPolicy(path=path)
    assert len(calls) == 1
    monkeypatch.setattr(verdicts, "known", {})  # another process
    TextPolicy(path=path)
    (stored,) = verdict_folder.glob("*.json")
    assert len(calls) == 1 and json.loads(stored.read_text())["shares"]
    TextPolicy(path=save(tmp_path / "other", factor=3.0))
    assert len(calls) == 2


def test_a_checkpoint_is_measured_again_when_its_pictures_are_read_otherwise(tmp_path, verdict_folder):
    build_checkpoint("idefics3", "image", tmp_path / "start")
    file = tmp_path / "start" / "processor_config.json"
    settings = json.loads(file.read_text())
    for longest in (64, 64, 128):
        settings["image_processor"]["size"] = {"longest_edge": longest}
        file.write_text(json.dumps(settings))
        VisionLanguagePolicy(path=str(tmp_path / "start"))
    assert len(list(verdict_folder.glob("*.json"))) == 2


def test_half_precision_is_measured_too(tmp_path):
    policy = TextPolicy(path=save(tmp_path / "start"), dtype="bfloat16")
    assert policy.model.dtype == torch.bfloat16 and policy.prefix_sharing.masks


def test_the_probe_is_scored_by_the_plain_model(tmp_path):
    policy = TextPolicy(path=save(tmp_path / "start")).eval()
    probe = sample_probe(policy)
    with use_attention(policy.model, "eager"):
        assert policy.model.config._attn_implementation == "eager"
    assert policy.model.config._attn_implementation == NAME
    assert [len(o["input_ids"]) for o in probe.observations] == [8, 24] and probe.batch["action"].shape == (3, 3)


LONGROPE = {
    **{"num_key_value_heads": 4, "max_position_embeddings": 512, "original_max_position_embeddings": 128},
    "rope_parameters": {
        **{"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 128},
        **{"short_factor": [1.0] * 4, "long_factor": [4.0] * 4},
    },
}


def test_rows_beyond_the_switch_of_positions_are_refused(tmp_path):
    policy = TextPolicy(path=save(tmp_path / "start", "phi3", **LONGROPE, pad_token_id=0)).eval()
    assert policy.switch_length == 128 and policy.context_length == 512
    policy.refuse_long(100, 28)
    with pytest.raises(ValueError, match=r"a row of 129 tokens: phi3 .* more than 128 tokens .*shorten the prompts"):
        policy.refuse_long(100, 29)
    with pytest.raises(ValueError, match="a row of 130 tokens"):
        policy.refuse_long(130)
    assert TextPolicy(path=save(tmp_path / "other")).switch_length is None


@pytest.mark.parametrize(("kind", "names"), [("deepseek_v32", ["index_topk"]), ("doge", ["keep_window_size"])])
def test_rows_in_which_a_model_selects_what_it_reads_are_refused(kind, names, tmp_path):
    build_checkpoint(kind, "text", tmp_path / "start")
    assert TextPolicy(path=str(tmp_path / "start")).switch_length == 256
    config = json.loads((tmp_path / "start/config.json").read_text())
    (tmp_path / "start/config.json").write_text(json.dumps(config | dict.fromkeys(names, 32)))
    policy = TextPolicy(path=str(tmp_path / "start"))
    policy.refuse_long(20, 12)
    with pytest.raises(ValueError, match=rf"a row of 33 tokens: {kind} selects the tokens .* of more than 32 tokens"):
        policy.refuse_long(20, 13)


@pytest.mark.parametrize(
    ("settings", "length"),
    [
        ({"index_topk": 7}, 7),
        ({"index_topk_blocks": 4, "index_block_size": 8}, 32),
        ({"index_topk_blocks": 4}, None),
        ({"keep_window_size": 0}, None),
        ({"index_topk": None}, None),
        ({"index_topk": 9, "keep_window_size": 5}, 5),
    ],
)
def test_the_shortest_selection_counts(settings, length):
    switch = find_switch(AutoConfig.for_model("qwen2", **settings))
    assert (switch and switch[0]) == length


@pytest.mark.parametrize("original", [16, 32])
def test_prompts_of_the_comparison_fit_before_the_switch_of_positions(original, tmp_path):
    path = save(tmp_path / "start", "phi3", **LONGROPE, pad_token_id=0)
    config = json.loads((tmp_path / "start/config.json").read_text())
    config["original_max_position_embeddings"] = original
    config["rope_parameters"]["original_max_position_embeddings"] = original
    (tmp_path / "start/config.json").write_text(json.dumps(config))
    policy = TextPolicy(path=path).eval()
    assert policy.switch_length == original and policy.prefix_sharing.masks
    with pytest.raises(ValueError, match=f"a row of {original + 1} tokens"):
        policy.refuse_long(original - 3, 4)


def test_noise_settings_that_evaluation_reads_are_not_taken_from_it(tmp_path):
    """The router of phimoe cuts experts by its jitter in evaluation too, and draws in training whatever it is."""
    build_checkpoint("phimoe", "text", tmp_path / "start")
    with pytest.raises(ValueError, match="phimoe computes something else here than in transformers alone"):
        TextPolicy(path=str(tmp_path / "start"))


def test_random_weights_of_types_that_no_test_compares_are_compared(caplog):
    settings = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.5}
    policy = TextPolicy(config={"model_type": "falcon", **settings})
    assert not policy.prefix_sharing.masks and "falcon keeps its own attention" in caplog.text


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_of_low_precision_are_compared_in_fp32(dtype, tmp_path):
    policy = TextPolicy(path=save(tmp_path / "start"), dtype=dtype)
    assert max(measure_differences(policy, Plain("sdpa")).values()) < 1e-4
    assert {weight.dtype for weight in policy.parameters()} == {getattr(torch, dtype)}


def test_the_line_is_printed_at_every_load(tmp_path, caplog):
    build_checkpoint("falcon", "text", tmp_path / "start")
    for _ in range(2):
        caplog.clear()
        TextPolicy(path=str(tmp_path / "start"))
        (record,) = caplog.records
        assert "falcon keeps its own attention" in record.getMessage()


def picture(height, width):
    return np.random.default_rng(height).integers(0, 255, (height, width, 3)).astype(np.uint8)


@pytest.mark.parametrize("kind", ["idefics3", "idefics2", "llava_next", "qwen2_vl"])
def test_pictures_of_several_sizes_are_read_as_by_the_plain_model(kind, tmp_path):
    build_checkpoint(kind, "image", tmp_path / "start")
    policy = VisionLanguagePolicy(path=str(tmp_path / "start")).eval()
    raw = [
        {**policy.canary(), "images": (picture(*size),)}
        for size in ((32, 32), (60, 20), (32, 64), (40, 40), (20, 200), (9, 9))
    ]
    prompts = [policy.encode(each) for each in raw]
    columns = policy.collate(prompts)
    inputs = {"input_ids": columns["input_ids"], **policy.extra_inputs(columns)}
    positions = policy.positions(columns["input_ids"], columns["attention_mask"], inputs)
    with torch.no_grad():
        hidden = policy.model(**inputs, attention_mask=columns["attention_mask"], position_ids=positions).logits[:, -1]
        for row, prompt in enumerate(prompts):
            with Plain("sdpa").restore(policy.model):
                plain = policy.model(**row_inputs(prompt, torch.tensor([], dtype=torch.long), policy.per_token))
            assert (plain.logits[0, -1] - hidden[row]).abs().max() < 1e-4


def test_positions_that_count_the_pictures_of_other_rows_are_refused(tmp_path):
    build_checkpoint("hunyuan_vl", "image", tmp_path / "start")
    with pytest.raises(ValueError, match="positions of a row depend on the other rows of its batch"):
        VisionLanguagePolicy(path=str(tmp_path / "start"))


def test_a_mask_along_the_tokens_of_pictures_is_refused(tmp_path):
    """mllama reads pictures through cross-attention, whose mask has a row for each token."""
    config, processor = build_processor("mllama")
    config.get_text_config().cross_attention_layers = [1]
    build_model(config, "image").save_pretrained(tmp_path / "start")
    processor.save_pretrained(tmp_path / "start")
    with pytest.raises(ValueError, match="mllama computes something else here than in transformers alone"):
        VisionLanguagePolicy(path=str(tmp_path / "start"))
