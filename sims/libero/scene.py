"""One LIBERO task's simulation, shared by all episodes of the task in this process."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np

from sims.divergence import refuse_divergence
from sims.libero.domain import build_env
from sims.libero.suites import TaskFiles

_TRIALS = 100
OPEN = -1.0
"""The gripper's action that opens it; +1 closes it."""


class LiberoScene:
    """A task's model, controller and goal. Episodes take turns in it: each has its own state (`EpisodeState`).

    A model takes 150 to 300 MB, so that episodes cannot have one each.

    Args:
        files: of the task.
        renderer: "ray", "egl" or "osmesa"; without OpenGL the model has no textures.
    """

    def __init__(self, files: TaskFiles, renderer: str):
        self.files, self.states = files, files.load_states()
        with contextlib.redirect_stdout(io.StringIO()):
            self.env = build_env(files.definition, lean=renderer == "ray")
        self.robot = self.env.robots[0]
        words = self.env.parsed_problem["language_instruction"]
        self.sentence = files.sentence or (words if isinstance(words, str) else " ".join(words))
        self.active: EpisodeState | None = None
        self._cameras: dict[tuple[str, int], Any] = {}
        self.renderer = renderer

    @property
    def model(self) -> Any:
        """MuJoCo's model."""
        return self.env.sim.model._model

    @property
    def data(self) -> Any:
        """MuJoCo's state and what follows from it, of the active episode."""
        return self.env.sim.data._data

    def begin(self, number: int) -> EpisodeState:
        """Begin an episode in a stored state.

        Fixtures such as cabinets are no part of stored states; the package places them at random within a
        centimetre. Here the draw is the same in every episode.

        Raises:
            IndexError: there is no such state.
        """
        if not 0 <= number < len(self.states):
            raise IndexError(f"task {self.files.name!r} has {len(self.states)} stored states, asked for {number}")
        self._reset()
        self.robot.gripper.current_action = np.zeros(2)
        self.env.sim.set_state_from_flattened(self.states[number])
        self.env.sim.forward()
        self.env._post_process()
        self.active = EpisodeState(self)
        self.active.save()
        return self.active

    def _reset(self) -> None:
        """Reset the package's environment with the draws of one seed; it draws again where objects do not fit."""
        from robosuite.utils.errors import RandomizationError

        random_state = np.random.get_state()
        np.random.seed(0)
        try:
            for _ in range(_TRIALS):
                try:
                    self.env.reset()
                    return
                except RandomizationError:
                    continue
            raise RuntimeError(f"the objects of task {self.files.name!r} could not be placed in {_TRIALS} draws")
        finally:
            np.random.set_state(random_state)

    def camera(self, name: str, size: int) -> Any:
        """A camera of the scene, with `draw(data)`."""
        if (name, size) not in self._cameras:
            from sims.libero.cameras import make_camera

            self._cameras[name, size] = make_camera(self.renderer, self.model, name, size)
        return self._cameras[name, size]

    def close(self) -> None:
        for camera in self._cameras.values():
            camera.close()
        self.env.close()


class EpisodeState:
    """What an episode has of its own in a scene: MuJoCo's state, the controller and the gripper's target."""

    def __init__(self, scene: LiberoScene):
        import mujoco

        self.scene = scene
        self._kind = int(mujoco.mjtState.mjSTATE_INTEGRATION)
        self._numbers = np.zeros(mujoco.mj_stateSize(scene.model, self._kind))
        self._controller: Any = None
        self._gripper = np.zeros(2)

    def save(self) -> None:
        """Copy the state out of the scene."""
        import mujoco

        mujoco.mj_getState(self.scene.model, self.scene.data, self._numbers, self._kind)
        self._controller, self._gripper = self.scene.robot.controller, self.scene.robot.gripper.current_action

    def activate(self) -> None:
        """Bring the state into the scene, if another episode was there."""
        if self.scene.active is self:
            return
        import mujoco

        scene, scene.active = self.scene, self
        model, data = scene.model, scene.data
        mujoco.mj_setState(model, data, self._numbers, self._kind)
        for compute in (mujoco.mj_kinematics, mujoco.mj_comPos, mujoco.mj_camlight):
            compute(model, data)  # positions alone: what a step computes first must not depend on who was here before
        scene.robot.controller, scene.robot.gripper.current_action = self._controller, self._gripper
        scene.env._post_process()

    def step(self, action: np.ndarray) -> bool:
        """Take a control step; returns whether the package's own check says that the goal is reached.

        Args:
            action: float64 [7] in [-1, 1], the gripper's with +1 to close it.

        Raises:
            FloatingPointError: the simulation diverged.
        """
        self.activate()
        with refuse_divergence(self.scene.data):
            _, _, success, _ = self.scene.env.step(action)
        self.save()
        return bool(success)

    def read_robot(self) -> np.ndarray:
        """Position of the hand (m), its orientation as axis times angle, and both fingers, float32 [8]."""
        self.activate()
        data, robot = self.scene.data, self.scene.robot
        turned = np.roll(data.body(robot.robot_model.eef_name).xquat, -1)  # x, y, z, w
        fingers = data.qpos[robot._ref_gripper_joint_pos_indexes]
        return np.concatenate([data.site_xpos[robot.eef_site_id], _axis_angle(turned), fingers]).astype(np.float32)

    def flat(self) -> np.ndarray:
        """Time, positions and velocities, as a file of initial states has them."""
        self.activate()
        return np.array(self.scene.env.sim.get_state().flatten())


def _axis_angle(quaternion: np.ndarray) -> np.ndarray:
    """Axis times angle in [0, 2 pi) of a quaternion x, y, z, w, in robosuite's convention."""
    real = float(np.clip(quaternion[3], -1, 1))
    length = np.sqrt(1 - real * real)
    return np.zeros(3) if length < 1e-9 else quaternion[:3] * 2 * np.arccos(real) / length
