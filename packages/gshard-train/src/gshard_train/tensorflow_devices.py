"""TensorFlow beside JAX: it reads and writes files, and on GPUs would take JAX's memory."""

import functools
import threading

import jax
from absl import logging

_lock = threading.Lock()


def hide_gpus() -> None:
    """Leaves TensorFlow the CPU alone; to be called before whatever uses TensorFlow first.

    Where TensorFlow was used already it keeps what it has, and that is logged.
    """
    with _lock:  # TensorBoard's thread asks too
        _hide()


@functools.cache
def _hide() -> None:
    if jax.default_backend() != "gpu":
        return  # TensorFlow's import, which takes seconds, is not needed for that
    try:
        import tensorflow as tf
    except ImportError:
        return
    try:
        tf.config.set_visible_devices([], "GPU")
    except (RuntimeError, ValueError) as error:
        logging.warning("TensorFlow keeps its GPUs, and memory on them: %s", error)
