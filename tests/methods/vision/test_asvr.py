"""ASVR: codes of image tokens, the loss of the next one by hand, and a tiny policy that predicts them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Completion, Context, Episode, PolicyOutput, Prompt, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.methods.vision.asvr.policy import ReconstructingPolicy, VisualReconstruction, reconstruction_loss
from mmrl.methods.vision.asvr.tokens import VisualTokens, fit_codebooks, quantise

SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
CONFIG = {
    "model_type": "llava",
    "text_config": {"model_type": "qwen2", **SIZES, "num_key_value_heads": 2, "max_position_embeddings": 128},
    "vision_config": {
        "model_type": "siglip_vision_model", **SIZES, "image_size": 16, "patch_size": 8, "vision_use_head": False,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return ReconstructingPolicy(levels=2, codes=4, config=CONFIG)


def episode(policy, number, images=1):
    """An answer `a` to a question about images, which become 2 x 2 tokens each."""
    pixels = np.random.default_rng(number).integers(0, 256, (images, 16, 16, 3), dtype=np.uint8)
    content = [{"type": "image"}] * images + [{"type": "text", "text": "what" * (number + 1)}]
    prompt = Prompt(f"p/train/{number}", ({"role": "user", "content": content},), tuple(pixels))
    ids = policy.encode_demonstration(prompt.observation, "a")
    done = Completion(policy.encode(prompt.observation), ids, torch.zeros(len(ids)), torch.ones(len(ids)).bool(), "a")
    return Episode(prompt, number, 0, [Turn(done)], source="demo")


def annotate(policy, episodes, transform=None):
    ctx = Context(None, None, policy, Sampling(), seed=0, iteration=0, models={"reference": policy})
    rows = (transform or VisualTokens(levels=2, codes=4, rows=2))(episodes, ctx)
    batch = collate(rows, policy)
    return batch.with_columns(temperature=torch.ones(batch.rows))


def test_the_loss_by_hand():
    # -log softmax: log(1 + e^-1 + e^-2) = .407606 for [2, 1, 0] and 0; log 3 = 1.098612 for equal logits; sum 1.506218
    logits = torch.tensor([[[2.0, 1.0, 0.0], [0.0, 0.0, 0.0]]])
    ids = torch.tensor([[0, 2]])
    loss = reconstruction_loss(logits, ids, torch.tensor([0]), 1)
    assert_close(loss, torch.tensor([1.506218]), atol=1e-6, rtol=0)
    assert_close(reconstruction_loss(logits[:, :1], ids[:, :1], torch.tensor([0]), 1), torch.tensor([0.407606]))
    # of a row with two tokens the mean, of a row without images 0: [(1.506218 + 2 * 1.098612) / 2, 0, 1.506218]
    three = torch.cat([logits, torch.zeros(1, 2, 3), logits])
    out = reconstruction_loss(three, ids.expand(3, 2), torch.tensor([0, 0, 2]), 3)
    assert_close(out, torch.tensor([1.851721, 0.0, 1.506218]), atol=1e-6, rtol=0)
    nothing = torch.zeros(0, 2, 3, requires_grad=True)
    empty = reconstruction_loss(nothing, torch.zeros(0, 2).long(), torch.zeros(0).long(), 2)
    empty.sum().backward()
    assert empty.tolist() == [0, 0] and nothing.grad is not None


def test_codebooks_are_the_centres_of_clusters_and_of_what_they_leave():
    # clusters at 0 and 10, in each of which points are 1 to the left and to the right of the centre
    features = torch.tensor([-1.0, 1.0, 9.0, 11.0])[:, None]
    books = fit_codebooks(features, levels=2, codes=2)
    assert sorted(books[0, :, 0].tolist()) == [0, 10] and sorted(books[1, :, 0].tolist()) == [-1, 1]
    ids = quantise(features, books)
    assert_close(books[0][ids[:, 0]] + books[1][ids[:, 1]], features)
    other = fit_codebooks(features[[2, 0, 3, 1]], levels=2, codes=2)
    assert_close(other.sort(1).values, books.sort(1).values)
    assert quantise(features[:0], books).shape == (0, 2)


def test_each_state_at_an_image_token_predicts_the_next_one(policy):
    batch = annotate(policy, [episode(policy, 0), episode(policy, 1, images=2), episode(policy, 2, images=0)])
    assert batch["visual_ids"].lengths.tolist() == [4 * 2, 8 * 2, 0]
    out = policy(batch)
    loss = VisualReconstruction()(out, batch)
    assert loss.shape == (3,) and (loss[:2] > 0).all() and loss[2] == 0
    alone = [policy(batch.select(torch.tensor([row]))).extra["visual_loss"][0] for row in range(3)]
    assert_close(torch.stack(alone), loss)  # padding on the left changes nothing
    ids = batch["visual_ids"][torch.tensor([0])].values.view(4, 2)
    seen = episode(policy, 0).turns[0].completion.observation
    inputs = {"input_ids": seen["input_ids"][None], "pixel_values": seen["pixel_values"]}
    states = policy.model(**inputs, output_hidden_states=True).hidden_states[-1][0]
    where = (inputs["input_ids"][0] == policy.image_id).nonzero()[:, 0]
    logits = policy.visual_head(states[where[:3]], ids[1:])
    assert_close(loss[0], reconstruction_loss(logits, ids[1:], torch.zeros(3).long(), 1)[0], atol=1e-5, rtol=1e-5)


def test_text_alone_has_no_visual_loss_and_a_gradient(policy):
    batch = annotate(policy, [episode(policy, 0), episode(policy, 1)])
    batch = batch.with_columns(visual_ids=batch["visual_ids"])
    text = annotate(policy, [episode(policy, 3, images=0)])
    loss = policy(text).extra["visual_loss"]
    assert loss.tolist() == [0] and loss.requires_grad
    policy(batch).extra["visual_loss"].sum().backward()
    grads = [value.grad for value in policy.visual_head.parameters()]
    assert all(grad is not None and grad.abs().sum() > 0 for grad in grads)
    encoder = policy.model.get_encoder(modality="image")
    assert any(value.grad is not None and value.grad.abs().sum() > 0 for value in encoder.parameters())
    policy.zero_grad()


def test_the_loss_falls_and_rows_of_one_prompt_share_it(policy):
    first = episode(policy, 0)
    batch = annotate(policy, [first, replace(first, sample_index=1), episode(policy, 1)])
    batch = batch.with_columns(prompt_id=torch.tensor([0, 0, 1]))
    optimizer = torch.optim.Adam(policy.parameters(), 1e-2)
    losses = []
    for _ in range(30):
        loss = policy(batch).extra["visual_loss"]
        assert loss[0] == loss[1] != loss[2]
        losses.append(loss.sum().item())
        optimizer.zero_grad()
        loss.sum().backward()
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]


def test_iterations_without_images_or_rows_wait_for_the_first_image(policy):
    transform = VisualTokens(levels=2, codes=4)
    assert annotate(policy, [episode(policy, 3, images=0)], transform)["visual_ids"].lengths.tolist() == [0]
    ctx = Context(None, None, policy, Sampling(), seed=0, iteration=0, models={"reference": policy})
    assert transform([], ctx) == [] and transform.state_dict() == {}
    assert annotate(policy, [episode(policy, 0)], transform)["visual_ids"].lengths.tolist() == [8]


def test_codebooks_stay_and_are_saved(policy):
    transform = VisualTokens(levels=2, codes=4)
    before = annotate(policy, [episode(policy, 0)], transform)["visual_ids"].values
    state = transform.state_dict()
    annotate(policy, [episode(policy, 5)], transform)
    assert torch.equal(transform.state_dict()["codebooks"], state["codebooks"])
    again = VisualTokens(levels=2, codes=4)
    again.load_state_dict(state)
    assert torch.equal(annotate(policy, [episode(policy, 0)], again)["visual_ids"].values, before)


def test_the_head_is_saved_beside_the_model(policy, tmp_path):
    policy.save_pretrained(tmp_path)
    again = ReconstructingPolicy(levels=2, codes=4, path=str(tmp_path))
    batch = annotate(policy, [episode(policy, 0), episode(policy, 1)])
    assert_close(again(batch).extra["visual_loss"], policy(batch).extra["visual_loss"], atol=1e-5, rtol=1e-5)


def test_missing_codes_and_models_are_named(policy):
    with pytest.raises(KeyError, match="VisualTokens"):
        VisualReconstruction()(PolicyOutput(torch.zeros(1, 1), torch.zeros(1, 1)), None)
    batch = annotate(policy, [episode(policy, 0)], VisualTokens(levels=1, codes=4))
    with pytest.raises(ValueError, match="2 levels"):
        policy(batch)
    ctx = Context(None, None, policy, Sampling(), seed=0, iteration=0)
    with pytest.raises(ValueError, match=r"model\.reference=true"):
        VisualTokens()([episode(policy, 0)], ctx)
