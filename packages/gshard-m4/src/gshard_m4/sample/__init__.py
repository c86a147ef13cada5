"""Small real text in 102 languages with its English, in the wheel."""
