"""Which host of several is the slow one.

All hosts make their steps together, so the time of a step says nothing: what differs is the time
that a host's own work takes, data included, while the others wait for it on their devices.
"""

import jax
import numpy as np


def slowest(own_seconds: float) -> dict[str, float]:
    """This host's seconds a step and, with several hosts, which has most and how many.

    With several hosts all have to call it at the same step: it waits for all of them.

    Args:
      own_seconds: a step's time less the wait for devices, on this host.
    """
    if jax.process_count() == 1:
        return {"host_seconds": own_seconds}
    from jax.experimental import multihost_utils

    seconds = np.asarray(multihost_utils.process_allgather(np.float32(own_seconds)))
    return {
        "host_seconds": float(seconds.mean()),
        "slowest_host": int(seconds.argmax()),
        "slowest_host_seconds": float(seconds.max()),
    }
