# not right, as a language model may write: the import is missing
def reward(before, action, after):
    return {"height": sin(3 * after["position"])}  # noqa: F821
