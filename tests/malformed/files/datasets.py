"""Malformed LeRobot folders and HDF5 files, made from a right one by one change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.datasets.episodes import episode, write
from tests.malformed.files.case import Case

DATA, META = "data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet"
ALL = object()  # the whole of a JSON file
GONE = object()  # an entry that is taken away


@lru_cache(maxsize=1)
def _good() -> Path:
    return write(Path(mkdtemp()) / "good", [episode(5, seed) for seed in range(3)])


def lerobot(change: Callable[[Path], object] = lambda folder: None) -> Callable[[Path], Path]:
    """A dataset of three episodes, changed."""

    def build(folder: Path) -> Path:
        change(shutil.copytree(_good(), folder / "set"))
        return folder / "set"

    return build


def write_text(name: str, content: str | bytes) -> Callable[[Path], Path]:
    """The dataset with other bytes in one file."""
    raw = content.encode() if isinstance(content, str) else content
    return lerobot(lambda folder: (folder / name).write_bytes(raw))


def edit(name: str, *keys: str, to: Any) -> Callable[[Path], Path]:
    """The dataset with one entry of a JSON file changed or taken away."""

    def change(folder: Path) -> None:
        stored = json.loads((folder / name).read_text())
        node = stored
        for key in keys[:-1]:
            node = node[key]
        if to is GONE:
            del node[keys[-1]]
        else:
            node[keys[-1]] = to
        (folder / name).write_text(json.dumps(stored))

    return lerobot(change)


def info(*keys: str, to: Any) -> Callable[[Path], Path]:
    return edit("meta/info.json", *keys, to=to)


def shape(key: str, to: list[int]) -> Callable[[Path], Path]:
    """The dataset with another shape of a column and no stated statistics."""

    def build(folder: Path) -> Path:
        place = info("features", key, "shape", to=to)(folder)
        (place / "meta/stats.json").unlink()
        return place

    return build


def column(name: str, key: str, values: Any) -> Callable[[Path], Path]:
    """The dataset with one column of a parquet file replaced; None takes it away."""

    def change(folder: Path) -> None:
        table = pq.read_table(folder / name)
        at = table.column_names.index(key)
        given = values(table[key].to_pylist()) if callable(values) else values
        table = table.remove_column(at)
        if given is not None:
            table = table.add_column(at, key, pa.array(given) if isinstance(given, list) else given)
        pq.write_table(table, folder / name)

    return lerobot(change)


def action(value: float) -> Callable[[Path], Path]:
    """The dataset with one number of the second episode's actions changed."""

    def change(rows: list) -> Any:
        rows[7][1] = value
        return pa.array(rows, pa.list_(pa.float32(), 3))

    return column(DATA, "action", change)


def cut(name: str, share: float) -> Callable[[Path], Path]:
    """The dataset with one file cut."""

    def change(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(share * len(content))])

    return lerobot(change)


def remove(name: str) -> Callable[[Path], Path]:
    return lerobot(lambda folder: (folder / name).unlink())


_INFO, _STATS, _OWN = r"meta/info\.json", r"meta/stats\.json", r"meta/mmrl\.json"
_LENGTH = "total_frames|control steps|length|rows of it"
LEROBOT = [
    Case("info.json is a list", write_text("meta/info.json", "[]"), _INFO, "a list, not an object"),
    Case("info.json is a text", write_text("meta/info.json", '"v3.0"'), _INFO, "a text, not an object"),
    Case("info.json is not JSON", write_text("meta/info.json", "{"), _INFO, "broken JSON"),
    Case("info.json is empty", write_text("meta/info.json", ""), _INFO, "broken JSON"),
    Case("info.json is binary", write_text("meta/info.json", b"\x89PNG\r\n\x1a\n"), _INFO, "not UTF-8"),
    Case("info.json is nested too deeply", write_text("meta/info.json", "[" * 100_000), _INFO, "nested too deeply"),
    Case(
        "info.json has a key twice", write_text("meta/info.json", '{"fps": 1, "fps": 2}'), _INFO, "'fps' stands twice"
    ),
    Case("info.json is missing", remove("meta/info.json"), "set", "not a dataset.*info.json"),
    Case("an older version", info("codebase_version", to="v2.1"), _INFO, "'v2.1'.*convert it once"),
    Case("a newer version", info("codebase_version", to="v9"), _INFO, "'v9'.*newer"),
    Case("no version", info("codebase_version", to=GONE), _INFO, "codebase_version is None"),
    Case("fps is 0", info("fps", to=0), _INFO, "fps is 0; it must be"),
    Case("fps is negative", info("fps", to=-20), _INFO, "fps is -20; it must be"),
    Case("fps is a text", info("fps", to="x"), _INFO, "fps is 'x'; it must be"),
    Case("fps is null", info("fps", to=None), _INFO, "fps is None; it must be"),
    Case("fps is a list", info("fps", to=[20]), _INFO, r"fps is \[20\]; it must be"),
    Case("fps is a Boolean", info("fps", to=True), _INFO, "fps is True; it must be"),
    Case("fps is missing", info("fps", to=GONE), _INFO, "fps is None; it must be"),
    Case("fps is another one", info("fps", to=10), _INFO, "timestamp.*set fps in"),
    Case("features are null", info("features", to=None), _INFO, "features: must be an object.* null"),
    Case("features are a list", info("features", to=[]), _INFO, "features: must be an object.* list"),
    Case("features are empty", info("features", to={}), _INFO, "features lack"),
    Case("no action", info("features", "action", to=GONE), _INFO, r"features lack \['action'\]"),
    Case("an action that is null", info("features", "action", to=None), _INFO, "feature 'action'.* null"),
    Case("an action without a type", info("features", "action", "dtype", to=GONE), _INFO, "dtype None is not known"),
    Case("an action of type foo", info("features", "action", "dtype", to="foo"), _INFO, "dtype 'foo' is not known"),
    Case("an action of texts", info("features", "action", "dtype", to="string"), _INFO, "must be a vector of numbers"),
    Case("an action of times", info("features", "action", "dtype", to="datetime64"), _INFO, "dtype .* is not known"),
    Case("an action without a shape", info("features", "action", "shape", to=GONE), _INFO, "shape None must be a list"),
    Case("an action of shape 3", info("features", "action", "shape", to=3), _INFO, "shape 3 must be a list"),
    Case("an action of shape []", info("features", "action", "shape", to=[]), _INFO, r"shape \[\] must be a list"),
    Case("an action of shape [0]", info("features", "action", "shape", to=[0]), _INFO, r"shape \[0\] must be a list"),
    Case("an action of shape [-3]", info("features", "action", "shape", to=[-3]), _INFO, "must be a list"),
    Case("an action of shape ['x']", info("features", "action", "shape", to=["x"]), _INFO, "must be a list"),
    Case("an action of shape [3, 1]", info("features", "action", "shape", to=[3, 1]), _INFO, "must be a vector"),
    Case("an action of 10^12 numbers", info("features", "action", "shape", to=[10**12]), _INFO, "must be a list"),
    Case("an action of another length", info("features", "action", "shape", to=[7]), "action", "3 numbers,.* says 7"),
    Case("actions of another length", shape("action", [7]), "'action'", r"\[7\] in each"),
    Case("states of another length", shape("observation.state", [4]), "observation.state", r"\[4\] in each"),
    Case(
        "a camera of two axes",
        info("features", "observation.images.image", "shape", to=[32, 32]),
        _INFO,
        "height, width, channels",
    ),
    Case(
        "a camera of another size",
        info("features", "observation.images.image", "shape", to=[16, 32, 3]),
        "episode 0",
        "32 x 32 pixels",
    ),
    Case(
        "data_path with an unknown field",
        info("data_path", to="data/{episode}.parquet"),
        _INFO,
        "data_path.*its fields may be",
    ),
    Case("data_path with an attribute", info("data_path", to="{chunk_index.__class__}"), "set", "is missing|fields"),
    Case("data_path with half a field", info("data_path", to="data/{chunk_index"), _INFO, "its fields may be"),
    Case("data_path without a name", info("data_path", to="data/{}.parquet"), _INFO, "its fields may be"),
    Case("data_path is null", info("data_path", to=None), _INFO, "data_path is null"),
    Case("data_path is a list", info("data_path", to=[]), _INFO, "data_path is a list"),
    Case("data_path is missing", info("data_path", to=GONE), _INFO, "data_path is null"),
    Case("data_path leaves the folder", info("data_path", to="../../../../etc/passwd"), _INFO, "leaves the folder"),
    Case("data_path is absolute", info("data_path", to="/etc/passwd"), _INFO, "leaves the folder"),
    Case("data_path leaves it hidden", info("data_path", to="data/../../x"), _INFO, "leaves the folder"),
    Case("data_path of no file", info("data_path", to="data/other.parquet"), "other.parquet", "is missing; copy"),
    Case("video_path leaves the folder", info("video_path", to="../{video_key}.mp4"), _INFO, "leaves the folder"),
    Case("video_path is a number", info("video_path", to=7), _INFO, "video_path is a number"),
    Case(
        "a video without a path",
        info("features", "observation.images.image", "dtype", to="video"),
        _INFO,
        "there is no video_path",
    ),
    Case("chunks_size is 0", info("chunks_size", to=0), _INFO, "chunks_size is 0"),
    Case("chunks_size is a text", info("chunks_size", to="many"), _INFO, "chunks_size is 'many'"),
    Case("total_episodes is another one", info("total_episodes", to=4), _INFO, "total_episodes is 4"),
    Case("total_frames is a text", info("total_frames", to="15"), _INFO, "total_frames is '15'"),
    Case("stats.json is a list", write_text("meta/stats.json", "[]"), _STATS, "a list.*write=true"),
    Case("stats.json is not JSON", write_text("meta/stats.json", "{"), _STATS, "broken JSON.*write=true"),
    Case("stats.json of NaN", edit("meta/stats.json", "action", "mean", to=[float("nan"), 0, 0]), _STATS, "not finite"),
    Case("stats.json of texts", edit("meta/stats.json", "action", "std", to=["a", "b", "c"]), _STATS, "not numbers"),
    Case("stats.json of a text", edit("meta/stats.json", "action", to="x"), _STATS, "action: must be an object"),
    Case("stats.json of another length", edit("meta/stats.json", "action", "min", to=[0]), _STATS, "1 numbers.* 3"),
    Case("stats.json, ragged", edit("meta/stats.json", "action", "max", to=[[1], 2, 3]), _STATS, "not numbers"),
    Case("mmrl.json is a list", write_text("meta/mmrl.json", "[]"), _OWN, "a list, not an object"),
    Case("mmrl.json is not JSON", write_text("meta/mmrl.json", "{'a'}"), _OWN, "broken JSON"),
    Case("mmrl.json with a contract of text", edit("meta/mmrl.json", "contract", to="x"), _OWN, "contract: must be an"),
    Case("mmrl.json with a list of names", edit("meta/mmrl.json", "names", to=["a"]), _OWN, "names: must be an object"),
    Case(
        "mmrl.json with a number as a name",
        edit("meta/mmrl.json", "names", to={"observation.state": 3}),
        _OWN,
        "is 3, not a text",
    ),
    Case("mmrl.json with one name twice", edit("meta/mmrl.json", "names", to={"a": "x", "b": "x"}), _OWN, "one name"),
    Case("no tasks", remove("meta/tasks.parquet"), "tasks.parquet", "is missing"),
    Case("tasks that are no parquet", write_text("meta/tasks.parquet", "x"), "tasks.parquet", "not a readable parquet"),
    Case("tasks without numbers", column("meta/tasks.parquet", "task_index", None), "tasks.parquet", "needs columns"),
    Case("tasks that are numbers", column("meta/tasks.parquet", "task", [1, 2]), "tasks.parquet", "not a text"),
    Case("no episodes", remove(META), "set", "recording was not closed"),
    Case("episodes that are no parquet", write_text(META, b"PAR1xxxxPAR1"), META, "not a readable parquet file"),
    Case("episodes that were cut", cut(META, 0.5), META, "not a readable parquet file"),
    Case("episodes without lengths", column(META, "length", None), META, r"\['length'\] are missing"),
    Case("episodes without files", column(META, "data/file_index", None), META, "data/file_index.* missing"),
    Case("an episode of no length", column(META, "length", [5, 0, 5]), META, "length of episode 1 is 0"),
    Case("an episode of negative length", column(META, "length", [5, -5, 5]), META, "length of episode 1 is -5"),
    Case("an episode of another length", column(META, "length", [5, 6, 4]), "episode", _LENGTH),
    Case("a length that is a text", column(META, "length", ["5", "5", "5"]), META, "length of episode 0 is '5'"),
    Case("a length that is missing", column(META, "length", [5, None, 5]), META, "length of episode 1 is None"),
    Case("an episode twice", column(META, "episode_index", [0, 1, 1]), "meta/episodes", "episode 1 twice"),
    Case("an episode of another file", column(META, "data/file_index", [0, 3, 0]), r"file-003\.parquet", "is missing"),
    Case("data that are no parquet", write_text(DATA, "x"), DATA, "not a readable parquet file"),
    Case("data that were cut", cut(DATA, 0.7), DATA, "not a readable parquet file"),
    Case("data without actions", column(DATA, "action", None), DATA, r"columns \['action'\].* missing"),
    Case("data without times", column(DATA, "timestamp", None), DATA, r"columns \['timestamp'\].* missing"),
    Case("actions that are texts", column(DATA, "action", ["x"] * 15), "'action'", "string.* float32"),
    Case("actions that are missing", column(DATA, "action", [None] * 15), "'action'", "missing|numbers in"),
    Case(
        "actions of two lengths",
        column(DATA, "action", [[1.0, 2.0, 3.0]] * 7 + [[1.0]] + [[1.0] * 3] * 7),
        "'action'",
        "numbers in 5 control steps",
    ),
    Case("an action that is NaN", action(float("nan")), r"action\[1\]", "1 not finite.*leave those episodes out"),
    Case("an action that is infinite", action(float("-inf")), r"action\[1\]", "1 not finite"),
    Case("an action of 3e38", action(3e38), r"action\[1\]", r"1 beyond 1e\+09"),
    Case(
        "times that are NaN",
        column(DATA, "timestamp", pa.array([float("nan")] * 15, pa.float32())),
        "episode 0",
        "timestamp nan",
    ),
    Case(
        "times of another rate",
        column(DATA, "timestamp", pa.array(np.arange(15) / 3, pa.float32())),
        "episode",
        "timestamp",
    ),
    Case("a task that is not there", column(DATA, "task_index", [9] * 15), "episode 0", "task_index 9 is not in"),
    Case(
        "an image that is missing",
        column(DATA, "observation.images.image", lambda rows: pa.array([{"bytes": None, "path": "x.png"}, *rows[1:]])),
        "episode 0",
        "control step 0 has no image",
    ),
    Case(
        "an image that is cut",
        column(
            DATA,
            "observation.images.image",
            lambda rows: pa.array([{"bytes": rows[0]["bytes"][:60], "path": None}, *rows[1:]]),
        ),
        "episode 0",
        "control step 0 cannot",
    ),
    Case("a folder of nothing", lambda folder: folder, "test", "not a dataset that can be read here"),
    Case("no folder", lambda folder: folder / "none", "none", "no such folder or file"),
    Case("a path of 5,000 characters", lambda _: Path("a" * 5000), "aaaa", "no path of a folder or file"),
]


def robomimic(change: Callable[[h5py.File], object]) -> Callable[[Path], Path]:
    """A robomimic file of two demonstrations, changed."""

    def build(folder: Path) -> Path:
        with h5py.File(folder / "set.hdf5", "w") as file:
            data = file.create_group("data")
            data.attrs["env_args"] = json.dumps({"env_kwargs": {"control_freq": 20}})
            for number in range(2):
                demo = data.create_group(f"demo_{number}")
                demo["actions"], demo["rewards"] = np.ones((4, 3)), np.ones(4)
                demo["dones"] = np.array([0, 0, 0, 1])
                demo.create_group("obs")["state"] = np.zeros((4, 5))
            change(file)
        return folder / "set.hdf5"

    return build


def put(name: str, value: Any) -> Callable[[Path], Path]:
    """The file with one array replaced; None takes it away."""

    def change(file: h5py.File) -> None:
        del file[name]
        if value is not None:
            file[name] = value

    return robomimic(change)


def minari(change: Callable[[h5py.File], object], metadata: str | None = None) -> Callable[[Path], Path]:
    """A Minari folder of two episodes, changed."""

    def build(folder: Path) -> Path:
        (folder / "data").mkdir()
        with h5py.File(folder / "data" / "main_data.hdf5", "w") as file:
            for number in range(2):
                group = file.create_group(f"episode_{number}")
                group["actions"], group["observations"] = np.ones((4, 2)), np.zeros((5, 3))
                group["rewards"], group["terminations"] = np.ones(4), np.zeros(4, bool)
                group["truncations"] = np.array([False, False, False, True])
            change(file)
        if metadata is not None:
            (folder / "data" / "metadata.json").write_text(metadata)
        return folder

    return build


def swap(name: str, value: Any) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del file[name]
        file[name] = value

    return change


def bytes_file(content: bytes) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        (folder / "set.hdf5").write_bytes(content)
        return folder / "set.hdf5"

    return build


def link(file: h5py.File) -> None:
    del file["data/demo_0/obs/state"]
    file["data/demo_0/obs/state"] = h5py.ExternalLink("/etc/other.hdf5", "/x")


def attribute(value: Any) -> Callable[[Path], Path]:
    return robomimic(lambda file: file["data"].attrs.__setitem__("env_args", value))


_FILE, _DEMO = r"set\.hdf5", r"set\.hdf5.*demo_0"
HDF5 = [
    Case("HDF5: no bytes", bytes_file(b""), _FILE, "not a readable HDF5 file.*copy"),
    Case("HDF5: a text", bytes_file(b"text"), _FILE, "not a readable HDF5 file.*copy"),
    Case("HDF5: the signature alone", bytes_file(b"\x89HDF\r\n\x1a\n" + bytes(40)), _FILE, "not a readable HDF5 file"),
    Case("HDF5: no group of data", robomimic(lambda file: file.move("data", "other")), _FILE, "'data' is missing"),
    Case("HDF5: data that are an array", put("data", np.zeros(3)), _FILE, "is an array"),
    Case(
        "HDF5: no demonstrations",
        robomimic(lambda file: [file["data"].__delitem__(f"demo_{i}") for i in (0, 1)]),
        _FILE,
        "no episodes",
    ),
    Case("HDF5: no actions", put("data/demo_0/actions", None), _DEMO, "'actions' is missing"),
    Case("HDF5: actions that are a number", put("data/demo_0/actions", 3.0), _DEMO, "actions must be numbers"),
    Case("HDF5: actions of three axes", put("data/demo_0/actions", np.zeros((4, 3, 2))), _DEMO, "actions must be"),
    Case("HDF5: actions of texts", put("data/demo_0/actions", np.array([b"a"] * 4)), _DEMO, "actions must be numbers"),
    Case("HDF5: actions of no step", put("data/demo_0/actions", np.zeros((0, 3))), _DEMO, "at least one action"),
    Case("HDF5: actions of no dimension", put("data/demo_0/actions", np.zeros((4, 0))), _DEMO, "at least one action"),
    Case(
        "HDF5: actions that are a group",
        robomimic(lambda file: (file.__delitem__("data/demo_0/actions"), file.create_group("data/demo_0/actions"))),
        _DEMO,
        "is a group; actions must",
    ),
    Case("HDF5: actions of NaN", put("data/demo_1/actions", np.full((4, 3), np.nan)), r"action\[0\]", "4 not finite"),
    Case("HDF5: actions of 3e38", put("data/demo_1/actions", np.full((4, 3), 3e38)), r"action\[0\]", "beyond"),
    Case("HDF5: no observations", put("data/demo_0/obs", None), _DEMO, "'obs' is missing"),
    Case("HDF5: fewer observations", put("data/demo_0/obs/state", np.zeros((3, 5))), _DEMO, "there are 4 actions"),
    Case("HDF5: an observation of one number", put("data/demo_0/obs/state", 1.0), _DEMO, "there are 4 actions"),
    Case(
        "HDF5: observations of records", put("data/demo_0/obs/state", np.zeros(4, [("a", "f4")])), _DEMO, "not numbers"
    ),
    Case("HDF5: fewer rewards", put("data/demo_0/rewards", np.ones(3)), "demo_0", "reward has 3 rows.* 4"),
    Case("HDF5: rewards of texts", put("data/demo_0/rewards", np.array([b"a"] * 4)), _DEMO, "cannot be read"),
    Case("HDF5: dones of one number", put("data/demo_0/dones", 1), _DEMO, "cannot be read"),
    Case("HDF5: a link to another file", robomimic(link), _DEMO, "is a link to '/etc/other.hdf5'; copy"),
    Case(
        "HDF5: a link to nothing",
        robomimic(
            lambda file: (
                file.__delitem__("data/demo_0/obs"),
                file.__setitem__("data/demo_0/obs", h5py.SoftLink("/nowhere")),
            )
        ),
        _DEMO,
        "'obs' is missing",
    ),
    Case("HDF5: env_args not JSON", attribute("{"), _FILE, "env_args.*broken JSON"),
    Case("HDF5: env_args a list", attribute("[]"), _FILE, "env_args.*must be an object"),
    Case("HDF5: env_args a number", attribute(7), _FILE, "env_args.*not JSON"),
    Case("HDF5: env_kwargs a list", attribute('{"env_kwargs": []}'), _FILE, "env_kwargs.*must be an object"),
    Case("HDF5: control_freq 0", attribute('{"env_kwargs": {"control_freq": 0}}'), _FILE, "control_freq.* is 0"),
    Case("HDF5: control_freq a text", attribute('{"env_kwargs": {"control_freq": "x"}}'), _FILE, "control_freq.* 'x'"),
    Case(
        "Minari: no episodes",
        minari(lambda file: [file.__delitem__(f"episode_{i}") for i in (0, 1)]),
        "main_data.hdf5",
        "no episodes",
    ),
    Case(
        "Minari: an episode without a number",
        minari(lambda file: file.move("episode_1", "episode_x")),
        "main_data.hdf5",
        "'episode_x' has no number; rename",
    ),
    Case("Minari: no rewards", minari(lambda file: file.__delitem__("episode_0/rewards")), "episode_0", "'rewards' is"),
    Case(
        "Minari: no ends",
        minari(lambda file: file.__delitem__("episode_0/terminations")),
        "episode_0",
        "'terminations' is missing",
    ),
    Case(
        "Minari: fewer ends",
        minari(swap("episode_0/truncations", np.zeros(2, bool))),
        "episode_0",
        "truncations have shape",
    ),
    Case("Minari: metadata not JSON", minari(lambda file: None, "{"), "metadata.json", "broken JSON"),
    Case("Minari: metadata a list", minari(lambda file: None, "[]"), "metadata.json", "a list, not an object"),
    Case(
        "Minari: another number of episodes",
        minari(lambda file: None, '{"total_episodes": 9}'),
        "metadata.json",
        "total_episodes is 9.* 2",
    ),
]
