"""Episodes with tools that answer with images: a row a turn, whose context has the images."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.group_advantage import GroupAdvantage
from mmrl.core.types import Context, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.policies.text.vision import VisionLanguagePolicy
from mmrl.rollouts.text.tool_demonstrations import ToolDemonstrations
from mmrl.rollouts.text.tools import ToolUse
from mmrl.tools.base import ToolOutput
from mmrl.tools.call_parser import TagParser
from mmrl.tools.chat_parser import HermesParser
from mmrl.tools.views import Zoom
from tasks.acuity import Acuity
from tests.tools.examples import STOPS, Echo

PARSER = TagParser(open_tag="{name}", close_tag="]", result_template="{text}", error_template="?")
TASK = Acuity()


def policy():
    torch.manual_seed(0)
    text = {"model_type": "qwen2", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    vision = {"model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    return VisionLanguagePolicy(
        config={
            "text_config": {**text, "num_attention_heads": 2, "num_key_value_heads": 2},
            "vision_config": {
                **vision, "num_attention_heads": 2, "image_size": 32, "patch_size": 8, "vision_use_head": False
            },
        }
    ).eval()  # fmt: skip


POLICY = policy()


def context(engine, **options):
    return Context(TASK, engine, POLICY, Sampling(max_tokens=8, stop=STOPS), seed=0, iteration=0, **options)


def demonstrated():
    rollout = ToolDemonstrations({"[": Zoom(TASK.units)}, PARSER, max_turns=1)
    return rollout.collect([(slot, TASK[slot]) for slot in range(3)], context(None))


def test_an_image_ends_the_row_and_the_next_one_reads_it():
    for slot, episode in enumerate(demonstrated()):
        first, second = (turn.completion for turn in episode.turns)
        call, answer = TASK.script(slot)
        assert first.output == call and episode.output == answer and TASK.score(episode)["exact"] == 1
        assert first.action_mask.all() and second.action_mask.all()
        prompt, conversation = (POLICY.tokenizer.decode(c.observation["input_ids"]) for c in (first, second))
        images = "<image>" * 16
        assert prompt == f"{images}Stripes of the black patch?" or prompt.startswith(images)
        assert conversation == f"{prompt}{call}{images}"
        assert len(first.observation["pixel_values"]) == 1 and len(second.observation["pixel_values"]) == 2
        # the second image is the zoomed one
        part = Zoom(TASK.units).start(episode.prompt).run(call[1:-1]).images[0]
        alone = POLICY.encode({"messages": episode.prompt.messages, "images": [part]})["pixel_values"]
        assert_close(second.observation["pixel_values"][1:], alone)
        assert episode.info["turns"] == 2 and episode.info["counts"] == {"tools/[/ok": 1}


class Calls(TagParser):
    """Reads every turn as a call for a cell, so that a policy with random weights calls the tool."""

    def parse(self, text, tools):
        return super().parse("[3 4]", tools)


def test_rows_are_scored_as_they_were_sampled_and_share_the_advantage_of_their_episode():
    engine = LocalEngine()
    engine.sync(POLICY, 0)
    rollout = ToolUse({"[": Zoom(TASK.units)}, Calls("{name}", "]", "{text}", "?"), max_turns=2)
    episodes = rollout.collect([(slot, TASK[slot]) for slot in range(2)], context(engine, group_size=2))
    for number, episode in enumerate(episodes):
        episode.reward = float(number)
    batch = collate(episodes, POLICY)
    assert batch.rows == 12 and [len(e.turns) for e in episodes] == [3] * 4 and episodes[0].ended == "length"
    with torch.no_grad():
        scored = POLICY(batch).logprobs
    mask = batch["action_mask"]
    assert_close(scored[mask], batch["behavior_logprobs"][mask], atol=2e-5, rtol=0)
    advantages = GroupAdvantage()(batch, context(engine))["advantages"]
    for episode in range(4):
        rows = batch["episode"] == episode
        assert rows.sum() == 3 and len(advantages[rows][mask[rows]].unique()) == 1


def test_a_result_cannot_smuggle_in_an_image_token():
    class Labelled(Zoom):
        def run(self, where: str):
            """
            Show it.

            Args:
                where: the cell.
            """
            return ToolOutput("<image>", super().run(where).images)

    rollout = ToolDemonstrations({"[": Labelled(TASK.units)}, PARSER, max_turns=1)
    (episode,) = rollout.collect([(0, TASK[0])], context(None))
    text = POLICY.tokenizer.decode(episode.turns[1].completion.observation["input_ids"])
    assert text.count("<image>") == 32 and text.endswith("< image>")


def test_chat_models_read_images_in_tool_messages():
    task = Acuity(call='<tool_call>{{"name": "zoom", "arguments": {{"where": "{x} {y}"}}}}</tool_call>')
    rollout = ToolDemonstrations({"zoom": Zoom(task.units)}, HermesParser(), max_turns=1)
    ctx = Context(task, None, POLICY, Sampling(), seed=0, iteration=0)
    (episode,) = rollout.collect([(0, task[0])], ctx)
    assert len(episode.turns) == 2 and len(episode.turns[1].completion.observation["pixel_values"]) == 2
    # the template writes no calls, so the call stands in the text of the second row
    assert '"name": "zoom"' in POLICY.decode(episode.turns[1].completion.observation["input_ids"].tolist())
    assert episode.output.removesuffix("<eos>") == task[0].answer


@pytest.mark.parametrize("image", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8), "x"])
def test_what_is_no_image_is_a_fault_of_the_tool(image):
    class Wrong(Echo):
        def run(self, text: str):
            """
            Show it.

            Args:
                text: ignored.
            """
            return ToolOutput("", (image,))

    rollout = ToolDemonstrations({"[": Wrong()}, PARSER, max_turns=1)
    (episode,) = rollout.collect([(0, TASK[0])], context(None))
    assert episode.ended == "error" and "not_image" in episode.info["error"]
