"""What an evaluation measures on held-out examples, and writes."""
