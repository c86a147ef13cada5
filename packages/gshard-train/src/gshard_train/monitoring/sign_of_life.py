"""A word now and then from what takes long and says nothing by itself."""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator

_logger = logging.getLogger(__name__)


@contextlib.contextmanager
def told(doing: str, *, every_seconds: float = 30.0) -> Iterator[None]:
    """A `with` block whose duration so far is told now and then.

    Args:
      doing: what is done in it, such as "compiling".
      every_seconds: how often it is told.
    """
    began, done = time.monotonic(), threading.Event()

    def tell() -> None:
        while not done.wait(every_seconds):
            _logger.info("Still %s, for %.0f s now.", doing, time.monotonic() - began)

    thread = threading.Thread(target=tell, name="sign of life", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
