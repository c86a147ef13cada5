"""The search for a layout: how a model is best cut for a machine."""
