"""Text policies of a frozen language model with networks on its last states."""
