"""Plain functions as tools."""

import pytest

from mmrl.config.compose import compose
from mmrl.core.errors import ConfigError
from mmrl.tools.call_parser import ToolCall
from mmrl.tools.executor import ToolExecutor
from mmrl.tools.function import FunctionTool

SOURCE = '''
def multiply(left: int, right: int = 1) -> int:
    """Multiply two whole numbers.

    Args:
        left: the first one.
        right: the second one.
    """
    if left > 99:
        raise ValueError("left is too large")
    return {"product": left * right}


def bare(left, right):
    return left
'''


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "multiplication_tools.py"
    path.write_text(SOURCE)
    return path


def run(tool, **arguments):
    executor = ToolExecutor()
    pending = executor.submit(ToolCall(tool.name, arguments), {tool.name: tool})
    executor.wait([pending])
    result = executor.result(pending)
    return result.outcome, result.text


def test_signature_and_docstring_are_the_schema(file):
    tool = FunctionTool(f"{file}:multiply")
    function = tool.schema_as("times")["function"]
    assert (tool.name, function["name"], function["description"]) == (
        "multiply",
        "times",
        "Multiply two whole numbers.",
    )
    assert function["parameters"]["required"] == ["left"]
    assert function["parameters"]["properties"]["right"] == {"type": "integer", "description": "the second one."}


def test_values_are_json_and_a_value_error_is_the_caller_s(file):
    tool = FunctionTool(f"{file}:multiply")
    assert run(tool, left=6, right=7) == ("ok", '{"product": 42}')
    assert run(tool, left=100) == ("BadArguments", "left is too large")
    assert run(tool, left="6")[0] == "BadArguments"
    assert run(tool)[0] == "BadArguments"


def test_functions_that_cannot_be_tools_are_refused_by_name(file):
    with pytest.raises(ValueError, match=r"rollout\.functions: bare has no schema"):
        FunctionTool(f"{file}:bare")
    with pytest.raises(ValueError, match=r"rollout\.functions=.*multiplies.*did you mean 'multiply'"):
        FunctionTool(f"{file}:multiplies")


def test_the_command_line_names_functions(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    cfg = compose(["recipe=grpo", "rollout=tools", f"rollout.functions=[{file.name}:multiply]"])
    assert cfg.data.rollout.functions == [f"{file}:multiply"]
    with pytest.raises(ConfigError, match=r"rollout\.functions=.*there is no file"):
        compose(["recipe=grpo", "rollout=tools", "rollout.functions=[nothing.py:multiply]"])
