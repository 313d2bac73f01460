"""A game of OpenEnv: guess a number of one to nine. Zero breaks it."""

import random

from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class GuessAction(Action):
    guess: int


class GuessObservation(Observation):
    hint: str = ""


class Guess(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.number, self._state = 0, State()

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.number, self._state = random.Random(seed).randint(1, 9), State()
        return GuessObservation(hint="a number of 1 to 9")

    def step(self, action, timeout_s=None, **kwargs):
        if action.guess == 0:
            raise RuntimeError("zero is no number")
        self._state.step_count += 1
        hint = "larger" if action.guess < self.number else "smaller" if action.guess > self.number else "right"
        return GuessObservation(hint=hint, done=hint == "right", reward=float(hint == "right"))

    @property
    def state(self):
        return self._state


app = create_app(Guess, GuessAction, GuessObservation, env_name="guess", max_concurrent_envs=3)
