import sys
import types

import pytest

from mmrl.core.function_path import load_functions, resolve_path, split_path


@pytest.fixture
def file(tmp_path):
    sys_path, modules = list(sys.path), set(sys.modules)
    file = tmp_path / "my_rewards.py"
    file.write_text(
        "import my_helper\n\n\ndef score(completion):\n    return my_helper.ONE\n\n\n"
        "class Judge:\n    made = 0\n\n    def __init__(self):\n        Judge.made += 1\n\n"
        "    def score(self, completion):\n        return Judge.made\n\n    def style(self, completion):\n"
        "        return Judge.made\n\n    @staticmethod\n    def plain(completion):\n        return 5\n\n"
        "    def __call__(self, completion):\n        return 7\n\n\nnumber = 3\n\n\n"
        "class Needs:\n    def __init__(self, path):\n        pass\n\n"
        "    def score(self, completion):\n        return 0\n"
    )
    (tmp_path / "my_helper.py").write_text("ONE = 1\n")
    yield file
    sys.path[:] = sys_path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("rewards.py:score", ("rewards.py", "score")),
        ("/a b/rewards.py:Judge.score", ("/a b/rewards.py", "Judge.score")),
        ("package.module:score", ("package.module", "score")),
        ("package.module.score", ("package.module", "score")),
    ],
)
def test_a_path_has_a_place_and_a_name(path, parts):
    assert split_path(path, "reward") == parts


@pytest.mark.parametrize("path", ["score", "rewards.py", "rewards.py:", ":score", "rewards.py:a b", "rewards.py:1"])
def test_what_names_no_function_is_refused(path):
    with pytest.raises(ValueError, match=r"name a function as rewards\.py:score"):
        split_path(path, "reward")


def test_a_file_is_made_absolute_and_must_exist(tmp_path):
    (tmp_path / "rewards.py").touch()
    assert resolve_path("rewards.py:score", tmp_path, "reward") == f"{tmp_path}/rewards.py:score"
    assert resolve_path("package.module:score", tmp_path, "reward") == "package.module:score"
    with pytest.raises(ValueError, match=rf"reward=nope\.py:score: there is no file {tmp_path}/nope\.py"):
        resolve_path("nope.py:score", tmp_path, "reward")


def test_functions_methods_classes_and_modules_are_loaded(file):
    names = ("score", "Judge.score", "Judge.style", "Judge.plain", "Judge")
    functions = load_functions([*(f"{file}:{name}" for name in names), "math:sqrt", "math.sqrt"], "reward")
    assert [function("x") for function in functions[:5]] == [1, 1, 1, 5, 7]  # Judge is instantiated once
    assert [function(9) for function in functions[5:]] == [3, 3]


def test_a_file_hides_no_module_of_its_name(tmp_path):
    file = tmp_path / "types.py"
    file.write_text("def score(completion):\n    return 2\n")
    path = list(sys.path)
    try:
        assert load_functions([f"{file}:score"], "reward")[0]("x") == 2
        assert sys.modules["types"] is types and sys.path == [*path, str(tmp_path)]
    finally:
        sys.path[:] = path


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("scroe", r"has no 'scroe'; did you mean 'score'\?"),
        ("Judge.nope", "Judge has no 'nope'; it has score, style"),
        ("number", "number is int, not a function"),
        ("Needs.score", r"Needs\(\) raised TypeError: .*its constructor must work without arguments"),
    ],
)
def test_a_name_that_gives_no_function_is_refused(file, name, message):
    with pytest.raises(ValueError, match=message):
        load_functions([f"{file}:{name}"], "reward")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def score(:\n", "raised SyntaxError"),
        ("import nope_nope\n", "ModuleNotFoundError: No module named 'nope_nope' .*line 1: import nope_nope"),
        ("x = 1\nexit(3)\n", r"raised SystemExit: 3"),
        ("def f():\n    return 1 / 0\n\n\nf()\n", r"ZeroDivisionError: .*line 2: return 1 / 0"),
    ],
)
def test_a_file_that_cannot_be_imported_is_refused_with_the_line(tmp_path, source, message):
    file = tmp_path / "broken_rewards.py"
    file.write_text(source)
    path = list(sys.path)
    try:
        with pytest.raises(ValueError, match=message):
            load_functions([f"{file}:score"], "reward")
    finally:
        sys.path[:] = path


def test_a_module_that_is_missing_is_refused():
    with pytest.raises(ValueError, match=r"reward=nope\.x: importing nope raised ModuleNotFoundError"):
        load_functions(["nope.x"], "reward")
