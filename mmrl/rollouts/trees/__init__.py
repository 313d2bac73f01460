"""Tree searches over steps of an answer, in which nodes have values and visits."""
