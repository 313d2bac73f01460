def reward(before, action, after):
    return {"stay": -abs(after["position"] + 0.5), "rest": -abs(after["velocity"])}
