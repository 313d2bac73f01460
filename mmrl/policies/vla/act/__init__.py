"""Action Chunking Transformer (ACT) in LeRobot's layout."""
