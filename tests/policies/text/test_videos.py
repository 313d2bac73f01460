"""Videos of prompts: what processors are told, and that sampling, scoring and learning are those of transformers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close
from transformers import AutoModelForImageTextToText, AutoProcessor

from mmrl.core.types import Prompt, Request, Sampling, Task, Video
from mmrl.data.checks.prompt_lengths import check_prompt_lengths
from mmrl.engines.local import LocalEngine
from mmrl.policies.text import cache
from mmrl.policies.text.fidelity import Plain, verdicts
from mmrl.policies.text.fidelity.measure import measure_differences
from mmrl.policies.text.policy import TextPolicy
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
from tests.videos import KINDS, ask, make_video, save_checkpoint


@dataclass(frozen=True)
class Rows(Task):
    """Prompts as they stand."""

    prompts: Sequence[Prompt]
    name = "rows"

    def __len__(self):
        return len(self.prompts)

    def __getitem__(self, index):
        return self.prompts[index]

    def score(self, episode):
        return {}

    def on(self, split):
        return self


STOPS = tuple("abcdefgh0123")
SAMPLING = Sampling(max_tokens=16, stop=STOPS)
PROMPTS = [
    ask(0, "what moves?", "video"),
    ask(1, "is the first the second, or is it another one of them?", "image", "video", "video"),
    ask(2, "a", "video", "image", size=(56, 28)),
    ask(3, "an image only", "image"),
    ask(4, "neither"),
]


@pytest.fixture(scope="module", params=KINDS)
def policy(request, tmp_path_factory):
    return decided(VisionLanguagePolicy(path=save_checkpoint(request.param, tmp_path_factory.mktemp("start")))).eval()


def plain_encode(processor, prompt, **options):
    """The prompt as a user of transformers encodes it: images and videos in the messages."""
    images, videos = iter(prompt.images), iter(prompt.videos)
    (message,) = prompt.messages
    content = []
    for part in message["content"]:
        if part["type"] == "image":
            part = {**part, "image": Image.fromarray(next(images))}
        elif part["type"] == "video":
            part = {**part, "video": next(videos).frames}
        content.append(part)
    if prompt.videos:
        options["video_metadata"] = [[video.metadata() for video in prompt.videos]]
    return processor.apply_chat_template(
        [{**message, "content": content}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs=options,
    )


def assert_equal_inputs(encoded, expected):
    expected = {name: value for name, value in expected.items() if name not in ("attention_mask", "video_metadata")}
    assert encoded.keys() >= expected.keys()
    for name, value in expected.items():
        value = value[0] if name in VisionLanguagePolicy.per_token else value
        assert torch.equal(encoded[name], value), name


@pytest.mark.parametrize("prompt", PROMPTS, ids=[str(i) for i in range(len(PROMPTS))])
def test_ids_pixels_grids_and_times_are_those_of_the_chat_template(policy, prompt):
    options = {"do_sample_frames": False} if prompt.videos else {}
    assert_equal_inputs(policy.encode(prompt.observation), plain_encode(policy.processor, prompt, **options))


def test_a_processor_chooses_frames_of_a_whole_video_as_it_does_by_default(tmp_path):
    """Qwen3-VL reads two frames a second, at least four; Qwen2.5-VL reads all."""
    frames = np.random.default_rng(0).integers(0, 256, (24, 32, 32, 3), dtype=np.uint8)
    prompt = replace(ask(0, "what?", "video"), videos=(Video(frames, 8.0),))
    steps = {}
    for make in (qwen2_5_vl, qwen3_vl):
        policy = VisionLanguagePolicy(path=str(make(tmp_path / make.__name__)))
        encoded = policy.encode(prompt.observation)
        assert_equal_inputs(encoded, plain_encode(policy.processor, prompt))
        steps[make.__name__] = encoded["video_grid_thw"][0, 0].item()
    assert steps == {"qwen2_5_vl": 12, "qwen3_vl": 3}


def test_time_positions_follow_the_frame_rate(tmp_path):
    """Qwen2.5-VL, two tokens a second by hand: pairs of frames are 2 / fps seconds and int(2 * 2 / fps) apart."""
    start = qwen2_5_vl(tmp_path)
    policy = VisionLanguagePolicy(path=str(start)).eval()
    rate = policy.model.config.vision_config.tokens_per_second
    for fps in (0.5, 2.0):
        frames = make_video(0).frames
        video = Video(frames, fps, (0, 1, 2, 3))
        columns = policy.collate([policy.encode(replace(PROMPTS[0], videos=(video,)).observation)])
        inputs = {"input_ids": columns["input_ids"], **policy.extra_inputs(columns)}
        positions = policy.positions(columns["input_ids"], columns["attention_mask"], inputs)
        (where,) = (columns["mm_token_type_ids"][0] == 2).nonzero(as_tuple=True)
        times = positions[0, 0, where].unique()
        assert (times - times[0]).tolist() == [0, int(rate * 2 / fps)]


def test_act_gives_the_log_probs_of_a_plain_forward_pass(policy):
    check_log_probs(policy, PROMPTS, SAMPLING)


def test_greedy_decoding_is_that_of_transformers(policy):
    check_greedy(policy, PROMPTS[:3], 8)


def test_completions_of_one_video_are_those_that_see_it_alone(policy, monkeypatch):
    monkeypatch.setattr(cache, "SHARED_FROM", 1)
    check_grouped(policy, PROMPTS, (2, 0, 4, 2, 1, 2, 0, 3, 1), SAMPLING)


def test_grouped_rows_score_as_in_transformers_and_store_frames_once(policy):
    """Completions of two prompts with videos, one with an image and one without: shared sequences, in no order."""
    order = [0, 1, 0, 3, 1, 4, 0, 1, 3]
    engine = LocalEngine()
    engine.sync(policy, 0)
    done = engine.sample([Request(PROMPTS[i].observation, seed, prompt_id=i) for seed, i in enumerate(order)], SAMPLING)
    batch = batch_of(policy, [PROMPTS[i] for i in order], done)
    with torch.no_grad():
        scored = policy(batch).logprobs
    for row, completion in enumerate(done):
        expected = plain_logits(policy, completion).log_softmax(-1).gather(1, completion.action[:, None])[:, 0]
        assert_close(scored[row, : len(expected)], expected, atol=1e-4, rtol=0)
    name = "obs.pixel_values_videos" if "obs.pixel_values_videos" in batch else "obs.pixel_values"
    encoded = [policy.encode(PROMPTS[i].observation) for i in (0, 1, 3)]
    assert batch[name].items.nbytes == sum(each[name[4:]].nbytes for each in encoded if name[4:] in each)


def test_other_frames_change_the_log_probs_of_their_own_row_alone(policy):
    done = completions(policy, PROMPTS[:3], SAMPLING)
    changed = replace(PROMPTS[1], videos=(PROMPTS[1].videos[0], make_video(77)))
    batch = batch_of(policy, PROMPTS[:3], done)
    done[1].observation = policy.encode(changed.observation)
    other = batch_of(policy, PROMPTS[:3], done)
    difference = ((policy(batch).logprobs - policy(other).logprobs) * batch["action_mask"]).abs().amax(1)
    assert difference[1] > 1e-4 and difference[[0, 2]].max() < 1e-5


def test_an_export_reads_videos_in_transformers_alone(policy, tmp_path):
    policy.save_pretrained(tmp_path)
    model, processor = AutoModelForImageTextToText.from_pretrained(tmp_path), AutoProcessor.from_pretrained(tmp_path)
    inputs = plain_encode(processor, PROMPTS[1], do_sample_frames=False)
    inputs = {name: value for name, value in inputs.items() if torch.is_tensor(value)}
    mine = {
        k: v[None] if v.dim() == 1 and k in policy.per_token else v
        for k, v in policy.encode(PROMPTS[1].observation).items()
    }
    with torch.no_grad():
        assert torch.equal(model.eval()(**inputs).logits, policy.model(**mine).logits)


def test_low_rank_adapters_learn_from_videos(tmp_path):
    policy = decided(VisionLanguagePolicy(path=str(qwen3_vl(tmp_path)), lora={"r": 4})).eval()
    done = completions(policy, PROMPTS, SAMPLING)
    assert largest_log_ratio(policy, PROMPTS, done) < 1e-4
    policy(batch_of(policy, PROMPTS, done)).logprobs.sum().backward()
    assert any(w.grad is not None and w.grad.abs().sum() > 0 for n, w in policy.named_parameters() if "lora_B" in n)


# ---------------------------------------------------------------- the measurement at load


def test_prompts_with_videos_are_measured(policy):
    assert policy.video_refusal == ""
    differences = measure_differences(policy, Plain("sdpa"), videos=True)
    assert {"sampled", "padded", "alone", "shared"} <= differences.keys() and max(differences.values()) < 1e-4


def test_a_model_that_is_not_exact_with_videos_keeps_its_images(tmp_path, monkeypatch):
    """Positions that forget the frame rate: another model than that of transformers."""
    monkeypatch.setenv("MMRL_FIDELITY", str(tmp_path / "verdicts"))
    monkeypatch.setattr(verdicts, "known", {})
    start = str(tmp_path / "decided")
    decided(VisionLanguagePolicy(path=str(qwen2_5_vl(tmp_path / "start")))).save_pretrained(start)
    forget = VisionLanguagePolicy.positions

    def positions(self, ids, attention, inputs):
        return forget(self, ids, attention, {k: v for k, v in inputs.items() if k != "second_per_grid_ts"})

    monkeypatch.setattr(VisionLanguagePolicy, "positions", positions)
    policy = VisionLanguagePolicy(path=start)
    assert policy.encode(PROMPTS[3].observation)
    with pytest.raises(ValueError, match=r"prompts with videos are not computed as in transformers alone: .* nats"):
        policy.encode(PROMPTS[0].observation)


# ---------------------------------------------------------------- what does not fit


def test_videos_of_different_lengths_are_refused_where_they_would_be_padded(tmp_path):
    policy = VisionLanguagePolicy(path=save_checkpoint("llava_onevision", tmp_path))
    with pytest.raises(ValueError, match=r"different numbers of frames .* set task\.frames"):
        completions(policy, [ask(0, "a", "video", frames=4), ask(1, "a", "video", frames=6)], SAMPLING)


def test_a_task_with_videos_of_different_lengths_is_refused_before_the_run(tmp_path):
    policy = VisionLanguagePolicy(path=save_checkpoint("llava_onevision", tmp_path))
    rows = [ask(0, "a", "video", frames=4), ask(1, "no video"), ask(2, "b", "video", frames=4)]
    check_prompt_lengths(Rows(rows), policy, 8)
    with pytest.raises(ValueError, match=r"^row 3: videos of different numbers of frames .* set task\.frames"):
        check_prompt_lengths(Rows([*rows, replace(ask(3, "a", "video", frames=6), place="row 3")]), policy, 8)


def test_videos_and_video_parts_must_agree(policy):
    with pytest.raises(ValueError, match=r"1 video part\(s\) but the prompt brings 2 video\(s\)"):
        policy.encode(replace(PROMPTS[0], videos=PROMPTS[1].videos).observation)


def test_whole_videos_beside_chosen_frames_are_refused(policy):
    videos = (make_video(0), Video(make_video(1).frames, 2.0))
    with pytest.raises(ValueError, match="give indices to all, or to none"):
        policy.encode(replace(PROMPTS[1], videos=videos).observation)


def test_a_template_without_videos_is_refused(tmp_path):
    start = qwen3_vl(tmp_path)
    file = start / "chat_template.jinja"
    file.write_text(file.read_text().replace("<|video_pad|>", ""))
    policy = VisionLanguagePolicy(path=str(start))
    with pytest.raises(ValueError, match=r"writes the token of a video \('<\|video_pad\|>'\) 0 time\(s\)"):
        policy.encode(PROMPTS[0].observation)


def test_policies_that_take_no_videos_say_so():
    llava = {"text_config": TINY, "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 16}}
    llava["vision_config"] |= {"num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 16, "patch_size": 8}
    with pytest.raises(ValueError, match=r"LlavaProcessor\) takes no videos.*qwen3_vl.*show_videos=images"):
        VisionLanguagePolicy(config=llava).encode(PROMPTS[0].observation)
    with pytest.raises(ValueError, match=r"TextPolicy cannot see, but the prompt has 1 video\(s\)"):
        TextPolicy(config=TINY).encode(
            Prompt("a/b/0", ({"role": "user", "content": "x"},), videos=(make_video(0),)).observation
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fps": 0.0}, "needs its frame rate"),
        ({"fps": float("nan")}, "needs its frame rate"),
        ({"indices": (0, 1)}, "4 frames has 2 indices"),
        ({"indices": (0, 3, 2, 4)}, "must ascend"),
        ({"indices": (-1, 0, 1, 2)}, "must ascend"),
        ({"indices": (0, 1, 2, 9), "total": 9}, "no frame 9"),
        ({"total": 3}, "total is too small"),
        ({"frames": np.zeros((4, 8, 8, 3))}, "must be uint8"),
        ({"frames": np.zeros((8, 8, 3), np.uint8)}, "must be uint8"),
        ({"frames": np.zeros((0, 8, 8, 3), np.uint8)}, "must be uint8"),
    ],
)
def test_videos_that_are_none_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Video(**{"frames": np.zeros((4, 8, 8, 3), np.uint8), "fps": 2.0, **arguments})
