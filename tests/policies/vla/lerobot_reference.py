"""Run LeRobot's pi models in their own environment: write a tiny checkpoint, or compute actions and losses of one.

`python lerobot_reference.py make|run KIND FOLDER TOKENIZER [INPUTS OUTPUTS]`, with LeRobot 0.6 and a transformers that
it accepts on PYTHONPATH. It imports nothing of this project, whose transformers is a newer one.
"""

import contextlib
import importlib
import io
import json
import sys
import types

import lerobot
import torch
from safetensors import safe_open
from safetensors.torch import save_file

# the package imports all its policies, of which some do not load everywhere
policies = types.ModuleType("lerobot.policies")
policies.__path__ = [f"{lerobot.__path__[0]}/policies"]
sys.modules["lerobot.policies"] = policies

from lerobot.configs import PolicyFeature  # noqa: E402
from lerobot.configs.types import FeatureType  # noqa: E402
from lerobot.processor import PolicyProcessorPipeline, tokenizer_processor  # noqa: E402
from lerobot.processor.converters import policy_action_to_transition, transition_to_policy_action  # noqa: E402

NAMES = {"pi0": "PI0", "pi05": "PI05", "pi0_fast": "PI0Fast"}
WORDS = 600
EXTRA = {"pi0_fast": {"fast_skip_tokens": 8, "max_decoding_steps": 40, "validate_action_token_prefix": False}}
TYPES = {"to_transition": policy_action_to_transition, "to_output": transition_to_policy_action}


def parts(kind):
    """Modules of the policy, made tiny: LeRobot's configuration has no entry for the sizes."""
    modeling = importlib.import_module(f"lerobot.policies.{kind}.modeling_{kind}")
    processing = importlib.import_module(f"lerobot.policies.{kind}.processor_{kind}")
    modeling.get_gemma_config = lambda name: modeling.GemmaConfig(32 if name == "gemma_2b" else 24, 2, 64, 8, 1, 4)
    pali, gemma = modeling.PaliGemmaForConditionalGenerationWithPiGemma, getattr(modeling, "PiGemmaForCausalLM", None)

    def tiny_pali(config):
        vision = config.vision_config
        vision.hidden_size, vision.num_hidden_layers, vision.intermediate_size = 32, 2, 48
        vision.projection_dim = config.projection_dim = 32
        vision.image_size = 56
        config.text_config.vocab_size = WORDS
        return pali(config)

    def tiny_gemma(config):
        config.vocab_size = WORDS
        return gemma(config)

    modeling.PaliGemmaForConditionalGenerationWithPiGemma = tiny_pali
    modeling.PiGemmaForCausalLM = tiny_gemma
    return modeling, processing


def use_tokenizers(folder, modeling):
    """Take the tokenizers of a folder in place of those on the hub: paligemma/ and, where there is one, fast/."""
    text = tokenizer_processor.AutoTokenizer
    load = lambda *_, **given: text.from_pretrained(f"{folder}/paligemma", **given)  # noqa: E731
    action = lambda *_, **given: fast_tokenizer(f"{folder}/fast", text)  # noqa: E731
    for module in (tokenizer_processor, modeling):
        module.AutoTokenizer = types.SimpleNamespace(from_pretrained=load)
        module.AutoProcessor = types.SimpleNamespace(from_pretrained=action)
    import transformers  # the policy imports both when it is built

    transformers.AutoTokenizer, transformers.AutoProcessor = modeling.AutoTokenizer, modeling.AutoProcessor


def fast_tokenizer(folder, loader):
    """The action tokenizer by the class of LeRobot that computes what physical-intelligence/fast does."""
    name = "lerobot.policies.molmoact2.molmoact2_hf_model.action_tokenizer"
    with open(f"{folder}/processor_config.json") as file:
        given = json.load(file)
    words = {name: given[name] for name in ("scale", "vocab_size", "min_token", "action_dim", "time_horizon")}
    return importlib.import_module(name).UniversalActionProcessor(loader.from_pretrained(folder), **words)


def make(kind, folder, tokenizer):
    modeling, processing = parts(kind)
    use_tokenizers(tokenizer, modeling)
    torch.manual_seed(0)
    config = getattr(modeling, f"{NAMES[kind]}Config")(
        chunk_size=8,
        n_action_steps=8,
        max_state_dim=16,
        max_action_dim=8,
        image_resolution=(56, 56),
        device="cpu",
        input_features={
            "observation.images.image": PolicyFeature(FeatureType.VISUAL, (3, 32, 32)),
            "observation.state": PolicyFeature(FeatureType.STATE, (13,)),
        },
        output_features={"action": PolicyFeature(FeatureType.ACTION, (3,))},
        **EXTRA.get(kind, {}),
    )
    policy = getattr(modeling, f"{NAMES[kind]}Policy")(config)
    for parameter in policy.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
        else:
            torch.nn.init.normal_(parameter, std=0.1)
    policy.save_pretrained(folder)
    stats = {
        "observation.state": {"mean": torch.zeros(13), "std": torch.ones(13)},
        "action": {"mean": torch.tensor([0.1, 0.2, 0.3]), "std": torch.tensor([1.0, 2.0, 0.5])},
    }
    for part in stats.values():
        part |= {"q01": part["mean"] - 2 * part["std"], "q99": part["mean"] + 2 * part["std"]}
    for pipeline in getattr(processing, f"make_{kind}_pre_post_processors")(config, stats):
        pipeline.save_pretrained(folder)


def run(kind, folder, tokenizer, inputs, outputs):
    modeling, _ = parts(kind)
    use_tokenizers(tokenizer, modeling)
    with safe_open(inputs, "pt") as file:
        given = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        tasks = json.loads(file.metadata()["tasks"])
    with contextlib.redirect_stdout(io.StringIO()) as said:
        policy = getattr(modeling, f"{NAMES[kind]}Policy").from_pretrained(folder).eval()
    assert "All keys loaded successfully" in said.getvalue(), said.getvalue()
    before = PolicyProcessorPipeline.from_pretrained(folder, config_filename="policy_preprocessor.json")
    after = PolicyProcessorPipeline.from_pretrained(folder, config_filename="policy_postprocessor.json", **TYPES)
    batch = before(
        {
            "observation.images.image": given["images"].movedim(-1, 1).float() / 255,
            "observation.state": given["state"],
            "action": given["chunk"],
            "task": tasks,
        }
    )
    found = {"tokens": batch["observation.language.tokens"], "state": batch["observation.state"]}
    observed = {name: value for name, value in batch.items() if name.startswith("observation.")}
    noise = {"noise": given["noise"]} if "noise" in given else {}
    with torch.no_grad():
        if kind == "pi0_fast":  # random weights write no chunk: the demonstrated tokens are decoded
            actions = policy.detokenize_actions(batch["action.tokens"][:, 1:], 8, 3)
        else:
            actions = policy.predict_action_chunk(observed, **noise)
        found |= {"actions": actions, "output": after(actions.flatten(0, 1)).unflatten(0, actions.shape[:2])}
        images, masks = policy._preprocess_images(batch)
        words = batch["observation.language.tokens"], batch["observation.language.attention_mask"]
        found["pixels"] = images[0]
        if kind == "pi0_fast":
            found |= {name: batch[name].long() for name in batch if name.startswith("action.")}
            found["loss"] = policy.forward(batch)[0]
        else:
            state = (policy.prepare_state(batch),) if kind == "pi0" else ()
            chunk = policy.prepare_action(batch)
            found["loss"] = policy.model.forward(images, masks, *words, *state, chunk, given["noise"], given["time"])
    save_file({name: value.contiguous().clone() for name, value in found.items()}, outputs)


if __name__ == "__main__":
    {"make": make, "run": run}[sys.argv[1]](*sys.argv[2:])
