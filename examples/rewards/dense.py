import math


def energy(state):
    """Of the hill's height, sin(3 x), and the speed."""
    return 0.0025 * math.sin(3 * state["position"]) / 3 + 0.5 * state["velocity"] ** 2


def reward(before, action, after):
    reached = after["position"] >= 0.45
    return {
        "energy": 20000.0 * (energy(after) - energy(before)),
        "goal": 100.0 if reached else 0.0,
        "effort": -0.1 * action[0] ** 2,
    }
