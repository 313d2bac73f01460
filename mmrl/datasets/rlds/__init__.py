"""Read folders in the format RLDS, as TensorFlow Datasets writes them, without TensorFlow."""
