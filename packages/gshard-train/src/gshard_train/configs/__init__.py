"""Gin files, found by their package path: `gshard_train/configs/<folder>/<name>.gin`."""
