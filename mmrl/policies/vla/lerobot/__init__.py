"""Folders of policies as LeRobot saves and loads them: config.json, model.safetensors, processors, statistics."""
