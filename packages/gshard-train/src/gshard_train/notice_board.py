"""What the processes of a run write for each other: signs of life, and a word that ends all.

It lies in JAX's coordination service, which is a part of process 0 and dies with it.
"""

import contextlib
import json
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

_SEEN, _VERDICT = "gshard_train/seen", "gshard_train/verdict"


class Store(Protocol):
    """Where the texts are: JAX's coordination service."""

    def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None:
        """Writes one value."""
        ...

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        """One value, once it is there; raises when it does not come in time."""
        ...

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        """All keys below one, with their values."""
        ...


class Seen(NamedTuple):
    """What one process last said of itself."""

    beat: int
    step: int
    doing: str
    host: str

    def name(self, index: int) -> str:
        """Which process it is, and where."""
        return f"process {index} on {self.host}, at step {self.step} ({self.doing}),"


class NoticeBoard:
    """One process's view of the board; any method raises where process 0 does not answer."""

    def __init__(self, index: int, store: Store | None = None):
        self._index = index
        self._store = _coordination_service() if store is None else store
        self._beat = 0
        self.first: Seen | None = None  # what process 0 said when it was last heard

    def say(self, step: int, doing: str) -> None:
        """Writes a sign of life of this process."""
        self._beat += 1
        seen = Seen(self._beat, step, doing, socket.gethostname())
        text = json.dumps(seen._asdict())
        self._store.key_value_set(f"{_SEEN}/{self._index}", text, allow_overwrite=True)

    def hear_first(self, seconds: float) -> None:
        """Reads `first`; raises where the service is frozen for so long, once it has spoken."""
        try:
            text = self._store.blocking_key_value_get(f"{_SEEN}/0", max(int(1000 * seconds), 1))
        except Exception:  # JAX's own type has no public name
            if self.first:
                raise
        else:
            self.first = Seen(**json.loads(text))

    def everyone(self) -> Mapping[int, Seen]:
        """The last sign of life of each process that gave one."""
        said = self._store.key_value_dir_get(_SEEN)
        return {int(key.rpartition("/")[2]): Seen(**json.loads(text)) for key, text in said}

    def verdict(self) -> str | None:
        """What ends all processes, once one has found it."""
        said = self._store.key_value_dir_get(_VERDICT)
        return said[0][1] if said else None

    def judge(self, said: str) -> None:
        """Leaves the verdict, unless one is there: the first to find something is right."""
        with contextlib.suppress(Exception):
            self._store.key_value_set(f"{_VERDICT}/all", said)


def _coordination_service() -> Store:
    # No public name for it; orbax uses the same.
    from jax._src import distributed

    client: Any = distributed.global_state.client
    assert client is not None, "several processes without jax.distributed.initialize"
    return client
