"""Checkpoints: saving, going on, which stay, and whether they are whole."""
