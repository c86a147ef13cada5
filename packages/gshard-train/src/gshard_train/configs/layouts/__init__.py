"""How a model lies on its mesh: gin files that are given after those of a model and a run."""
