"""What Python programs call: `fit`, `evaluate`, `load_policy`, by the code of the commands."""
