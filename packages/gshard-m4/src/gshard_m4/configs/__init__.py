"""Gin files of the M4 task, found by their package path: `gshard_m4/configs/<name>.gin`."""
