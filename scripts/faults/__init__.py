"""Faults that are planted in the code of methods, to see whether their tests notice."""
