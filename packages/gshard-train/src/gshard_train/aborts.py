"""A last word when C++ aborts the process, which no exception and no Python signal handler gets."""

import contextlib
import ctypes
import signal
from collections.abc import Callable, Iterator

_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)


@contextlib.contextmanager
def last_word(say: Callable[[], None]) -> Iterator[None]:
    """A `with` block in which an abort calls `say` first, in the thread that aborts.

    Where `say` returns, the process goes on to abort. Python's own handlers only note a signal for
    the main thread, which an abort never comes back to.
    """
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p

    def handle(number: int) -> None:
        libc.signal(number, None)  # the default: an abort in `say` is the last one
        say()

    handler = _HANDLER(handle)
    before = libc.signal(signal.SIGABRT, ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield
    finally:
        libc.signal(signal.SIGABRT, before)
