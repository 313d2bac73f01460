def reward(before, action, after):
    return {"goal": 100.0 if after["position"] >= 0.45 else 0.0, "effort": -0.1 * action[0] ** 2}
