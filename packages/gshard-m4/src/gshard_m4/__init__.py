"""The M4 task, 102 languages into English. Its modules are the interface: this imports none."""

from importlib.metadata import version

__version__ = version("gshard-m4")
