"""Trading of one asset at prices that a seed gives: an environment of gymnasium in text."""
