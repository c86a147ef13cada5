"""What is done with a model: train, eval, infer, export."""
