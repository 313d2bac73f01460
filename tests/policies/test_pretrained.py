"""No code of a checkpoint runs: transformers' loaders are called in one place, and it turns such code off."""

import ast
import io
import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

import mmrl
from mmrl.files.pretrained import build_pretrained, load_pretrained
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.scorer import ScoringPolicy
from mmrl.policies.text.vision import VisionLanguagePolicy
from mmrl.rewards.models.learned import ClassifierReward
from mmrl.rewards.models.similarity import GoalBaselineSimilarity
from tests.malformed.files.policies import SMALL, text_policy

ROOT = Path(mmrl.__file__).parents[1]
CALLS = ("from_pretrained", "from_config", "_from_config", "trust_remote_code")
HOME = "mmrl/files/pretrained.py"
CODE = """
from pathlib import Path
Path(__file__).with_name("hit").write_text("")
Path("hit").write_text("")
from transformers import *
class Mine(Qwen2Config): model_type = "mine"
class Model(Qwen2ForCausalLM): config_class = Mine
class Words(PreTrainedTokenizerFast): pass
class Both(ProcessorMixin): pass
"""


def outside(source: str) -> list[str]:
    """Calls of transformers' loaders in a module's source, and arguments that allow code."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in CALLS:
            names.append(node.attr)
        if isinstance(node, ast.keyword) and node.arg in CALLS:
            names.append(node.arg)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            names += [a.value for a in node.args if isinstance(a, ast.Constant) and a.value in CALLS]
    return names


def test_the_loaders_of_transformers_are_called_in_one_place():
    files = [file for folder in ("mmrl", "tasks", "sims") for file in (ROOT / folder).rglob("*.py")]
    places = {str(file.relative_to(ROOT)): outside(file.read_text()) for file in files}
    assert places.pop(HOME)
    assert {place: names for place, names in places.items() if names} == {}
    assert outside("AutoModel.from_pretrained(p)") == ["from_pretrained"]
    assert outside("load = AutoModel.from_pretrained") == ["from_pretrained"]
    assert outside("getattr(AutoModel, 'from_config')(c)") == ["from_config"]
    assert outside("load(p, trust_remote_code=True)") == ["trust_remote_code"]


def edit(file: Path, **values):
    content = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(content | values))


def of_config(folder):
    edit(folder / "config.json", model_type="mine", auto_map={
        "AutoConfig": "code.Mine", "AutoModelForCausalLM": "code.Model", "AutoModel": "code.Model",
        "AutoModelForSequenceClassification": "code.Model", "AutoModelForImageTextToText": "code.Model"})  # fmt: skip


def of_tokenizer(folder):
    edit(
        folder / "tokenizer_config.json",
        tokenizer_class="Words",
        auto_map={"AutoTokenizer": ["code.Words", "code.Words"]},
    )


def of_processor(folder):
    edit(folder / "processor_config.json", processor_class="Both", auto_map={"AutoProcessor": "code.Both"})
    edit(folder / "preprocessor_config.json", processor_class="Both", auto_map={"AutoImageProcessor": "code.Both"})


LOADERS = {
    "text": TextPolicy,
    "vlm": lambda path: VisionLanguagePolicy(path=path),
    "scorer": ScoringPolicy,
    "classifier": lambda path: ClassifierReward(path).load(),
    "encoders": lambda path: GoalBaselineSimilarity(path, "a goal", "a baseline")._encoders(),
}


@pytest.mark.parametrize("change", [of_config, of_tokenizer, of_processor], ids=lambda change: change.__name__)
@pytest.mark.parametrize("loader", LOADERS)
def test_code_of_a_folder_is_not_run(loader, change, tmp_path, monkeypatch):
    folder = tmp_path / "policy"
    text_policy().save_pretrained(folder)
    (folder / "code.py").write_text(CODE)
    change(folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 100))
    try:
        LOADERS[loader](str(folder))
    except ValueError as error:  # it is refused, or loads as a class of transformers
        assert "Traceback" not in str(error)
    assert not list(tmp_path.rglob("hit"))


@pytest.mark.parametrize(
    "name", ["kernels-community/flash-attn", "someone/kernel", "paged|someone/kernel", "hub", None, 3]
)
def test_kernels_of_the_hub_are_refused(name):
    with pytest.raises(ValueError, match="kernels of the hub"):
        build_pretrained(AutoModelForCausalLM, Qwen2Config(**SMALL), attn_implementation=name)


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation", "_attn_implementation_internal"])
def test_the_attention_is_not_that_of_the_configuration(key, tmp_path):
    model = Qwen2ForCausalLM(Qwen2Config(**SMALL, vocab_size=32))
    model.save_pretrained(tmp_path)
    edit(tmp_path / "config.json", **{key: "someone/kernel"})
    for kind in (AutoModelForCausalLM, Qwen2ForCausalLM):
        try:
            loaded = load_pretrained(kind, tmp_path)
        except ValueError as error:
            assert "someone/kernel" in str(error)
        else:
            assert loaded.config._attn_implementation == "sdpa"


def test_a_model_has_the_weights_and_the_attention_of_the_call(tmp_path):
    model = Qwen2ForCausalLM(Qwen2Config(**SMALL, vocab_size=32)).eval()
    model.save_pretrained(tmp_path)
    ids = torch.arange(6)[None]
    for options in ({}, {"attn_implementation": "eager"}):
        loaded = load_pretrained(AutoModelForCausalLM, tmp_path, **options).eval()
        assert loaded.config._attn_implementation == options.get("attn_implementation", "sdpa")
        torch.testing.assert_close(loaded(ids).logits, model(ids).logits)


def test_an_architecture_without_sdpa_is_loaded(tmp_path):
    from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

    config = OpenAIGPTConfig(n_embd=8, n_layer=1, n_head=2, vocab_size=16)
    OpenAIGPTLMHeadModel(config).save_pretrained(tmp_path)
    assert load_pretrained(AutoModelForCausalLM, tmp_path).config._attn_implementation == "eager"


@pytest.mark.parametrize("place", ["runs/rm/policy", "./rm", "~/rm", "/nowhere/rm"])
def test_a_folder_that_does_not_exist_is_no_name_of_the_hub(place):
    with pytest.raises(FileNotFoundError, match=f"{place}: there is no such folder"):
        ClassifierReward(place).load()
