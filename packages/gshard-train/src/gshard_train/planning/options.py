"""What a search is asked for."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from gshard_train.errors import did_you_mean
from gshard_train.ranges import counts, positive

VARIED = ("mesh", "rules", "num_groups", "remat", "microbatches", "dispatch")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What a search is asked for, beside its job; the names are those of the flags.

    Attributes:
      out: where the gin file of the best layout goes; "" for nowhere.
      results: folder of results.
      time_limit: seconds for the search.
      compile_limit: seconds for one candidate.
      candidates: how many are compiled at most; None for any number.
      vary: fields of `Layout` that are varied.
      tokens: source tokens that a run has.
      price: of a device-hour; None where it is not known.
      html: where a page of the search goes; "" for nowhere.
      dry_run: whether only what would be compiled first is shown.
    """

    out: str
    results: str
    time_limit: float = 570.0
    compile_limit: float = 300.0
    candidates: int | None = None
    vary: tuple[str, ...] = VARIED
    tokens: float = 1e12
    price: float | None = None
    html: str = ""
    dry_run: bool = False

    def faults(self) -> Iterator[str]:
        """A sentence for each flag that cannot be so."""
        yield from (f"--{fault}" for fault in positive(time_limit=self.time_limit))
        if self.candidates is not None:
            yield from (f"--{fault}" for fault in counts(candidates=self.candidates))
        if self.html and not Path(self.html).absolute().parent.is_dir():
            yield f"--html={self.html}: there is no directory {Path(self.html).parent}; make it"
        elif self.html and Path(self.html).is_dir():
            yield f"--html={self.html} is a directory; give a file"
        for name in self.vary:
            if name not in VARIED:
                yield (
                    f"--vary={name}: that is nothing that can be varied{did_you_mean(name, VARIED)}"
                    f" (it can be {', '.join(VARIED)})"
                )
        if not self.vary:
            yield f"--vary is empty; give some of {', '.join(VARIED)}"
