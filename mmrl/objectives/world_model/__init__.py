"""Losses of world models, and of actor and critic that learn in them."""
