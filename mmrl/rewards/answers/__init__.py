"""How answers are written: the grammar of numbers, and the ordinary forms of a final answer."""
