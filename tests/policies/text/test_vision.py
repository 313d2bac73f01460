"""VisionLanguagePolicy on LLaVA (plain positions), Qwen2.5-VL and Qwen3-VL (M-RoPE, ragged patches, deep stacking)."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForImageTextToText, AutoProcessor

from mmrl.core.types import Prompt, Request, Sampling
from mmrl.data.minibatches import micro_batches
from mmrl.engines.local import LocalEngine
from mmrl.objectives.weighting import TokenMean
from mmrl.policies.text import cache
from mmrl.policies.text.vision import VisionLanguagePolicy
from tests.checkpoints import qwen2_5_vl, qwen3_vl
from tests.policies.text.oracle import (
    TINY,
    batch_of,
    check_greedy,
    check_grouped,
    check_log_probs,
    completions,
    decided,
    largest_log_ratio,
    plain_logits,
)

LLAVA = {
    "model_type": "llava",
    "text_config": TINY,
    "vision_config": {
        "model_type": "siglip_vision_model",
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 16,
        "patch_size": 8,
        "vision_use_head": False,
    },
}
KINDS = ("llava", "qwen2_5_vl", "qwen3_vl")
STOPS = tuple("abcdefgh0123")
SAMPLINGS = {
    "plain": Sampling(max_tokens=24, stop=STOPS),
    "all": Sampling(temperature=0.8, top_k=20, top_p=0.9, max_tokens=24, stop=STOPS),
}
samplings = pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)


def prompt(index: int, text: str, *sizes: tuple[int, int]) -> Prompt:
    """A question after that many random images of these heights and widths."""
    rng = np.random.default_rng(index)
    images = tuple(rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes)
    content = [*({"type": "image"} for _ in images), {"type": "text", "text": text}]
    return Prompt(f"images/train/{index}", ({"role": "user", "content": content},), images)


PROMPTS = [
    prompt(0, "which?", (32, 32)),
    prompt(1, "what is to be seen in this one?", (64, 28)),
    prompt(2, "left or right of the other?", (28, 56), (56, 56)),
    prompt(3, "a", (60, 60)),
    prompt(4, "and without any image?"),
]


@pytest.fixture(scope="module", params=KINDS)
def policy(request, tmp_path_factory):
    torch.manual_seed(0)
    if request.param == "llava":
        return decided(VisionLanguagePolicy(config=LLAVA)).eval()
    make = {"qwen2_5_vl": qwen2_5_vl, "qwen3_vl": qwen3_vl}[request.param]
    return decided(VisionLanguagePolicy(path=str(make(tmp_path_factory.mktemp(request.param))))).eval()


def ragged(policy) -> bool:
    return policy.model.config.model_type != "llava"


# ---------------------------------------------------------------- the ratio starts at one


@samplings
def test_forward_gives_the_log_probs_of_act(policy, sampling):
    prompts = PROMPTS * 2
    done = completions(policy, prompts, sampling)
    assert len({len(c.action) for c in done}) > 2
    assert largest_log_ratio(policy, prompts, done) < 1e-4
    # in another order and in pieces, as micro-batches are
    order = [7, 2, 4, 0]
    assert largest_log_ratio(policy, [prompts[i] for i in order], [done[i] for i in order]) < 1e-4


def test_fp16_logits_are_masked_and_finite():
    torch.manual_seed(0)
    policy = decided(VisionLanguagePolicy(config=LLAVA, dtype="float16")).eval()
    done = completions(policy, PROMPTS, SAMPLINGS["all"])
    out = policy(batch_of(policy, PROMPTS, done))
    assert out.logprobs.isfinite().all() and out.entropy.isfinite().all()
    assert largest_log_ratio(policy, PROMPTS, done) < 0.1
    assert not any(torch.isin(c.action, torch.tensor(policy.forbidden)).any() for c in done)


def test_a_demonstration_that_writes_an_image_token_is_refused(policy):
    token = policy.tokenizer.convert_ids_to_tokens(policy.forbidden[0])
    with pytest.raises(ValueError, match="which this policy never writes"):
        policy.encode_demonstration({}, f"a {token} here")


def test_pixels_are_stored_once_for_all_completions_of_a_prompt(policy):
    """Four completions of each of two prompts with images and one without, in no order."""
    raws = [PROMPTS[i].observation for i in (0, 2, 4)]
    engine = LocalEngine()
    engine.sync(policy, 0)
    order = [0, 1, 2, 1, 0, 0, 2, 1, 2, 1, 0, 2]
    done = engine.sample([Request(raws[i], seed, prompt_id=i) for seed, i in enumerate(order)], SAMPLINGS["plain"])
    batch = batch_of(policy, [PROMPTS[(0, 2, 4)[i]] for i in order], done)
    distinct = [policy.encode(raw)["pixel_values"] for raw in raws[:2]]
    column = batch["obs.pixel_values"]
    assert column.items.nbytes == sum(part.nbytes for part in distinct)
    assert torch.equal(column.values, torch.cat([distinct[i] for i in order if i < 2]))
    # selecting and cutting rows copies no pixel, and what goes to another device or dtype has no more than it needs
    permuted = batch.select(torch.randperm(12, generator=torch.Generator().manual_seed(0)))
    pieces = [piece["obs.pixel_values"] for piece in permuted.split(5)]
    assert {piece.items.data_ptr() for piece in pieces} == {column.items.data_ptr()}
    alone = batch.select(torch.tensor([4, 0, 5]))["obs.pixel_values"].to(torch.float64)
    assert torch.equal(alone.items, distinct[0].double()) and alone.lengths.tolist() == [len(distinct[0])] * 3
    with torch.no_grad():
        whole = policy(batch).logprobs
        parts = torch.cat([policy(piece).logprobs for piece in batch.split(5)])
    assert_close(whole, parts, atol=1e-4, rtol=0)


def test_act_gives_the_log_probs_of_a_plain_forward_pass(policy):
    check_log_probs(policy, PROMPTS, SAMPLINGS["plain"])


@samplings
def test_completions_of_one_image_are_those_that_see_it_alone(policy, sampling, monkeypatch):
    monkeypatch.setattr(cache, "SHARED_FROM", 1)
    check_grouped(policy, PROMPTS, (2, 0, 4, 2, 1, 2, 0, 3, 3, 2), sampling)


def test_greedy_decoding_is_that_of_transformers(policy):
    check_greedy(policy, PROMPTS, 16)


def test_what_goes_on_from_ids_that_stand_already_is_the_rest_of_the_answer(policy):
    engine = LocalEngine()
    engine.sync(policy, 0)
    raws = [prompt.observation for prompt in PROMPTS]
    whole = engine.sample([Request(raw, 0) for raw in raws], Sampling(decode="argmax", max_tokens=8))
    longer = [(raw, done) for raw, done in zip(raws, whole) if len(done.action) > 3]
    assert longer
    requests = [Request(raw, 0, done.action[:3]) for raw, done in longer]
    for (_, done), rest in zip(longer, engine.sample(requests, Sampling(decode="argmax", max_tokens=5))):
        assert rest.action.tolist() == done.action[3:].tolist()
        assert_close(rest.behavior_logprobs, done.behavior_logprobs[3:], atol=1e-4, rtol=0)
        expected = plain_logits(policy, rest).log_softmax(-1).gather(1, rest.action[:, None])[:, 0]
        assert_close(rest.behavior_logprobs, expected, atol=1e-4, rtol=0)


def test_every_image_is_seen(policy):
    """Other pixels in one image change the log-probs of its own row, and of no other."""
    done = completions(policy, PROMPTS[:4], SAMPLINGS["plain"])
    changed = [*PROMPTS[:4]]
    changed[2] = Prompt(changed[2].key, changed[2].messages, (changed[2].images[0], 255 - changed[2].images[1]))
    batch = batch_of(policy, PROMPTS[:4], done)
    done[2].observation = policy.encode(changed[2].observation)
    other = batch_of(policy, changed, done)
    difference = ((policy(batch).logprobs - policy(other).logprobs) * batch["action_mask"]).abs().amax(1)
    assert difference[2] > 1e-3
    assert difference[[0, 1, 3]].max() < 1e-4


def test_a_draw_does_not_depend_on_the_batch_around_it(policy):
    together = completions(policy, PROMPTS, SAMPLINGS["all"])
    alone = [completions(policy, [p], SAMPLINGS["all"])[0] for p in PROMPTS]
    pairs = completions(policy, PROMPTS, SAMPLINGS["all"], max_rows=2)
    for other in (alone, pairs):
        assert [c.action.tolist() for c in other] == [c.action.tolist() for c in together]


# ---------------------------------------------------------------- the batch


def test_micro_batches_keep_each_row_with_its_images(policy):
    prompts = PROMPTS[:4] * 2
    batch = batch_of(policy, prompts, completions(policy, prompts, SAMPLINGS["plain"]))
    pieces = micro_batches(
        batch,
        TokenMean(),
        update_epochs=1,
        num_minibatches=2,
        accumulate=2,
        seed=0,
        iteration=0,
        device=torch.device("cpu"),
    )
    seen = []
    for piece in pieces:
        difference = (policy(piece).logprobs - piece["behavior_logprobs"])[piece["action_mask"]]
        assert difference.abs().max() < 1e-4
        seen += piece["group"].tolist()
    assert sorted(seen) == list(range(8))


def test_gradients_reach_the_eyes(policy):
    batch = batch_of(policy, PROMPTS[:2], completions(policy, PROMPTS[:2], SAMPLINGS["plain"]))
    policy.zero_grad()
    policy(batch).logprobs.sum().backward()
    vision = [p.grad for name, p in policy.named_parameters() if "visual" in name or "vision_tower" in name]
    assert any(g is not None and (g != 0).any() for g in vision)
    policy.zero_grad()


# ---------------------------------------------------------------- tokens of another kind


def test_image_tokens_are_never_drawn(policy):
    """Their logits are masked, also when they are by far the largest."""
    image = policy.forbidden[0]
    with torch.no_grad():
        weight = policy.model.get_output_embeddings().weight
        before = weight[image].clone()
        weight[image] = 10 * weight.abs().max()  # tied to the input embedding, which images replace
        done = completions(policy, PROMPTS[:2], Sampling(max_tokens=8, temperature=5.0))
        weight[image] = before
    assert not set(policy.forbidden) & {token for c in done for token in c.action.tolist()}


def test_an_image_token_that_was_emitted_is_a_forced_choice(policy):
    """An engine that knows nothing of the mask may emit one: it is scored 0, others as if a pad stood there."""
    done = completions(policy, PROMPTS[:2], Sampling(max_tokens=8))
    done[0].action = done[0].action.clone()
    done[0].action[3] = policy.forbidden[0]
    out = policy(batch_of(policy, PROMPTS[:2], done))
    assert out.logprobs[0, 3] == 0 and out.logprobs.isfinite().all() and out.entropy.isfinite().all()
    done[0].action[3] = policy.tokenizer.pad_token_id
    assert_close(policy(batch_of(policy, PROMPTS[:2], done)).logprobs[0, 4:], out.logprobs[0, 4:])
    out.logprobs.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in policy.parameters())
    policy.zero_grad()


# ---------------------------------------------------------------- what does not fit


def test_images_and_image_parts_must_agree(policy):
    one = PROMPTS[0]
    with pytest.raises(ValueError, match=r"1 image part\(s\) but the prompt brings 2"):
        policy.encode({"messages": one.messages, "images": one.images * 2})


def test_a_text_checkpoint_is_refused(tmp_path):
    from mmrl.policies.text.policy import TextPolicy

    TextPolicy(config=TINY).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"policy: qwen2 has no class in .* and a text model with policy=text"):
        VisionLanguagePolicy(path=str(tmp_path))


# ---------------------------------------------------------------- exports


def test_an_export_loads_with_transformers_alone(policy, tmp_path):
    policy.save_pretrained(tmp_path)
    model, processor = AutoModelForImageTextToText.from_pretrained(tmp_path), AutoProcessor.from_pretrained(tmp_path)
    one = PROMPTS[1]
    text = processor.apply_chat_template(list(one.messages), add_generation_prompt=True)
    inputs = processor(text=[text], images=list(one.images), return_tensors="pt", add_special_tokens=False)
    mine = {k: v[None] if v.dim() == 1 else v for k, v in policy.encode(one.observation).items()}
    assert inputs["input_ids"].tolist() == mine["input_ids"].tolist()
    with torch.no_grad():
        assert torch.equal(model.eval()(**inputs).logits, policy.model(**mine).logits)


def test_low_rank_adapters_on_a_vision_language_model(tmp_path):
    torch.manual_seed(3)
    policy = decided(
        VisionLanguagePolicy(path=str(qwen2_5_vl(tmp_path / "base")), lora={"r": 4}, value_head=True)
    ).eval()
    trained = [name for name, p in policy.named_parameters() if p.requires_grad]
    assert trained and all("lora_" in name or name.startswith("value_head") for name in trained)
    with torch.no_grad():
        for name, weight in policy.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.3)
    done = completions(policy, PROMPTS, SAMPLINGS["plain"])
    assert largest_log_ratio(policy, PROMPTS, done) < 1e-4
    policy.save_pretrained(tmp_path / "export")
    again = VisionLanguagePolicy(path=str(tmp_path / "export"), value_head=True).eval()
    assert largest_log_ratio(again, PROMPTS, done) < 1e-3


def test_a_frozen_encoder_gets_no_gradient_and_the_projector_does():
    policy = VisionLanguagePolicy(config=dict(LLAVA), freeze_vision=True)
    done = completions(policy, PROMPTS[:2], SAMPLINGS["plain"])
    policy(batch_of(policy, PROMPTS[:2], done)).logprobs.sum().backward()
    trained = {name for name, part in policy.named_parameters() if part.grad is not None and part.grad.abs().sum() > 0}
    assert any("multi_modal_projector" in name for name in trained) and any(
        "language_model" in name for name in trained
    )
    frozen = {name for name, part in policy.named_parameters() if not part.requires_grad}
    assert frozen == {name for name, _ in policy.named_parameters() if "vision_tower" in name}
