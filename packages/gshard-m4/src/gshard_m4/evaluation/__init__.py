"""Scores of translations into English: what is read, how it is scored, what is kept."""
