"""Play a simulator with random actions and compare what two of them returned, bit for bit."""

import numpy as np


def play(sim, num_envs, steps, seeds=range(1000)):
    """Everything that resets and steps return; with autoreset disabled, ended environments are reset."""
    env = sim.make(num_envs)
    rng, returned = np.random.default_rng(0), []
    returned.append(env.reset(seed=list(seeds[:num_envs])))
    for step in range(steps):
        env.action_space.seed(step)
        actions = env.action_space.sample()
        returned.append(env.step(actions))
        over = returned[-1][2] | returned[-1][3]
        if over.any() and env.metadata["autoreset_mode"].value == "Disabled":
            fresh = [int(seed) for seed in rng.integers(2**40, size=num_envs)]
            returned.append((env.reset(seed=fresh, options={"reset_mask": over})[0],))
    env.close()
    return returned


def assert_equal(one, two, where=""):
    """Types, dtypes, orders of keys and all values are equal."""
    assert type(one) is type(two), where
    if isinstance(one, dict):
        assert list(one) == list(two), where
        for name in one:
            assert_equal(one[name], two[name], f"{where}/{name}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(two), where
        for i, pair in enumerate(zip(one, two)):
            assert_equal(*pair, f"{where}[{i}]")
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (two.dtype, two.shape), where
        if one.dtype.hasobject:
            assert_equal(one.tolist(), two.tolist(), where)
        else:
            assert one.tobytes() == two.tobytes(), where
    else:
        assert one == two or (one != one and two != two), where
