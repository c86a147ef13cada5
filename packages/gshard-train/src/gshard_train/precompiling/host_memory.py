"""How much of this machine's memory a process takes; Linux alone, as the TPU compiler is."""

import contextlib
import ctypes
import gc
from pathlib import Path

_KIB = 2**10


def resident_bytes(pid: int) -> int:
    """What the process has in memory now; 0 where it has ended or nobody tells."""
    return _status(str(pid), "VmRSS")


def peak_bytes() -> int:
    """The most that this process had in memory since `forget_peak`; 0 where nobody tells."""
    return _status("self", "VmHWM")


def available_bytes() -> int:
    """What the machine could still give; 0 where nobody tells."""
    return _field(Path("/proc/meminfo"), "MemAvailable")


def forget_peak() -> None:
    """Gives back what is not used any more, and begins to measure the peak anew."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        # Otherwise the C library keeps what the last program took, and it would count again.
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", "ascii")


def _status(process: str, name: str) -> int:
    return _field(Path(f"/proc/{process}/status"), name)


def _field(file: Path, name: str) -> int:
    """A line `name: 123 kB` of a file of the kernel, in bytes."""
    with contextlib.suppress(OSError):
        for line in file.read_text("ascii", "replace").splitlines():
            key, _, value = line.partition(":")
            if key == name:
                return int(value.split()[0]) * _KIB
    return 0
