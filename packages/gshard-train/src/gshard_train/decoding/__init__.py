"""Searching for translations, batch by batch, and what is left of it on disk."""
