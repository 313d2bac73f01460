"""A copy of PushT's physics in which strokes are tried."""

from __future__ import annotations

from typing import Any, NamedTuple

Pair = tuple[float, float]
Triple = tuple[float, float, float]


class PushTState(NamedTuple):
    """Pusher and block in the package's coordinates.

    Attributes:
        pusher: place (px).
        pusher_velocity: px/s.
        block: place (px) and angle (rad).
        block_velocity: px/s and rad/s.
    """

    pusher: Pair
    pusher_velocity: Pair
    block: Triple
    block_velocity: Triple


def read_state(env: Any) -> PushTState:
    """The state of the package's environment, or of a `PhysicsCopy`."""
    agent, block = env.agent, env.block
    moving = (*block.velocity, block.angular_velocity)
    return PushTState(tuple(agent.position), tuple(agent.velocity), (*block.position, block.angle), moving)


class PhysicsCopy:
    """The package's space, set to any state and stepped without observations and rewards.

    Args:
        env: an environment of the package, unwrapped, for this copy alone.
    """

    def __init__(self, env: Any):
        env.reset(seed=0)
        for shape in env.space.shapes:
            shape.collision_type = 1  # the package counts contacts of type 0 in Python, which takes time
        self.env, self.space, self.agent, self.block = env, env.space, env.agent, env.block
        self.dt, self.substeps = env.dt, int(1 / (env.dt * env.control_hz))

    def set_state(self, state: PushTState) -> None:
        """Continue from a state."""
        agent, block = self.agent, self.block
        agent.position, agent.velocity = (-1e4, -1e4), (0.0, 0.0)
        for _ in range(self.space.collision_persistence + 1):  # the solver forgets contacts of the last run
            self.space.step(self.dt)
        agent.position, agent.velocity = state.pusher, state.pusher_velocity
        block.angle = state.block[2]  # turns about the centre of gravity, which moves the place: set that afterwards
        block.position = state.block[:2]
        block.velocity, block.angular_velocity = state.block_velocity[:2], state.block_velocity[2]

    def step(self, target: Pair) -> None:
        """One control step of the package's proportional-derivative controller towards a place (px)."""
        agent, dt, (x, y) = self.agent, self.dt, target
        stiffness, damping = self.env.k_p, self.env.k_v
        (px, py), (vx, vy) = agent.position, agent.velocity
        for _ in range(self.substeps):
            vx += (stiffness * (x - px) - damping * vx) * dt
            vy += (stiffness * (y - py) - damping * vy) * dt
            agent.velocity = (vx, vy)
            self.space.step(dt)
            px, py = px + vx * dt, py + vy * dt

    def measure_coverage(self) -> float:
        """The part of the goal's area that the block covers."""
        return float(self.env._get_coverage())
