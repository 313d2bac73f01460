"""Process reward models: scores of the steps of an answer."""
