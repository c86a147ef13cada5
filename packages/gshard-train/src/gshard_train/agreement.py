"""What several processes hold in common, so that none waits for ever for one that turned off.

Every process calls each of these, whatever it found by itself; what it found is an argument.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from gshard_train.errors import PeerLostError, UserError

T = TypeVar("T")
_BLOCK_BYTES = 256  # texts are filled up to blocks: a program is compiled for each length


def gathered(value: Any) -> list[Any]:
    """Each process's value, of what JSON has a form for.

    Raises:
      PeerLostError: another process is gone.
    """
    if jax.process_count() == 1:
        return [value]
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    sizes = np.ravel(_met(multihost_utils.process_allgather, np.array(text.size, np.int32)))
    row = np.zeros(-(-int(sizes.max()) // _BLOCK_BYTES) * _BLOCK_BYTES, np.uint8)
    row[: text.size] = text
    rows = _met(multihost_utils.process_allgather, row)
    return [json.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]


def from_first(value: np.ndarray) -> np.ndarray:
    """The first process's value.

    Raises:
      PeerLostError: another process is gone.
    """
    if jax.process_count() == 1:
        return value
    return np.asarray(_met(multihost_utils.broadcast_one_to_all, value))


def decided(decide: Callable[[], T]) -> T:
    """What `decide` gives on the first process, which alone calls it; of what JSON has a form for.

    Raises:
      UserError: on every process, where it raises on the first.
      RuntimeError: the same for other exceptions.
    """
    return gathered(together(lambda: decide() if jax.process_index() == 0 else None))[0]


def together(function: Callable[[], T]) -> T:
    """What `function` gives here, if it raises nowhere. It must not wait for other processes.

    Raises:
      UserError: on every process, where it raises on one; with the same exit code.
      RuntimeError: the same for other exceptions; where it came up it stays what it is.
    """
    value, raised = None, None
    try:
        value = function()
    except Exception as error:
        raised = error
    told = gathered(_told(raised))
    if raised is not None:
        raise raised
    for index, (text, exit_code) in enumerate(told):
        if text is not None and exit_code is None:
            raise RuntimeError(f"process {index}: {text}")
        if text is not None:
            fault = UserError(f"process {index}: {text}")
            fault.exit_code = exit_code
            raise fault
    return value  # pyright: ignore[reportReturnType]  # nothing was raised


def _met(collective: Callable[[np.ndarray], Any], value: np.ndarray) -> Any:
    try:
        return collective(value)
    except (RuntimeError, ValueError) as error:  # a `ValueError` on CPUs, from Gloo
        said = f"{type(error).__name__}: {error}".split("\n")[0]
        raise PeerLostError(
            f"process {jax.process_index()} waited for the others and one of them is gone "
            f"({said}); look at their logs, and start all processes again"
        ) from error


def _told(error: Exception | None) -> tuple[str | None, int | None]:
    if error is None:
        return None, None
    if isinstance(error, UserError):
        return str(error), error.exit_code
    return f"{type(error).__name__}: {error}", None
