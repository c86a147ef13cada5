"""The error that input which cannot be used ends in: every fault at once, one line each."""

from collections.abc import Iterable


class InputError(ValueError):
    """What is wrong with the input, all of it; `faults` has one line for each fault."""

    def __init__(self, faults: Iterable[str]):
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))

    def __reduce__(self) -> tuple[type["InputError"], tuple[tuple[str, ...]]]:
        """The faults, not their text: so it comes whole out of another process."""
        return type(self), (self.faults,)
