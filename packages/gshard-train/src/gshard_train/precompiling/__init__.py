"""The programs of a run, compiled for machines that are not here, and what they would cost."""
