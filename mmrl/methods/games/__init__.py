"""Games of several players or of one against an opponent, whose moves are written in language."""
