"""What would make a run fit that does not: changes compiled one after the other until one fits.

They come in the order of `ladder`. A change that lowers the need stays, and the next comes on top
of it; what cannot help is not compiled, and the reason is said.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Protocol

from gshard_annotate.inspector.quantities import duration, size
from gshard_train.precompiling.changes import Change, Rung
from gshard_train.precompiling.job import Job, Result
from gshard_train.precompiling.ladder import ladder
from gshard_train.precompiling.verdict import DeviceMemory, device_memory, fits, verdict

# A change that saves less than this share of the need is taken back.
_HELPS = 0.01
# A change is given up that takes so much longer to compile than what did not fit, and so long.
_PATIENCE, _LEAST_PATIENCE_SECONDS = 5, 300.0


class Compiles(Protocol):
    """What `compiler.Compiler` does."""

    def compile(self, job: Job, *, timeout_seconds: float | None = None) -> Result:
        """The result of compiling it."""
        ...

    def describe(self, job: Job) -> Result:
        """What is known before."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tried:
    """Changes, and what became of them.

    Attributes:
      what: the changes in words.
      flags: that make them.
      cautions: what else they change than memory and speed.
      outcome: a sentence.
      fits: whether it fits; None where it was not compiled or the compiler came to no end.
      peak_bytes: of memory on one device; None where nobody knows.
      step_seconds: the estimate; None where it does not fit.
      tokens_per_second: source tokens, likewise.
    """

    what: str
    flags: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    outcome: str
    fits: bool | None = None
    peak_bytes: int | None = None
    step_seconds: float | None = None
    tokens_per_second: float | None = None

    def __str__(self) -> str:
        return f"{self.what}: {self.outcome}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Advice:
    """What was tried to make it fit.

    Attributes:
      tried: in order.
      reason: what can be said without compiling, else "".
      found: the one that fits, the last one tried; None where nothing did.
    """

    tried: tuple[Tried, ...]
    reason: str = ""
    found: Tried | None = None


def advise(
    compiler: Compiles,
    result: Result,
    *,
    timeout_seconds: float | None = None,
    on_try: Callable[[str], None] = lambda what: None,
    on_tried: Callable[[Tried], None] = lambda tried: None,
) -> Advice:
    """What would make it fit.

    Args:
      compiler: compiles what is tried.
      result: of a job that is too large.
      timeout_seconds: for each that is compiled; one that takes five times as long as `result`
        is given up before, but not within five minutes.
      on_try: called with what is compiled next.
      on_tried: called with what became of it.

    Raises:
      ValueError: the result is not of a job that is too large.
    """
    facts, fault = result.facts, result.fault
    if facts is None or fits(device_memory(result, facts), fault) is not False:
        raise ValueError("advise: only a program that is too large needs advice")
    search = _Search(compiler, result, timeout_seconds, on_try)
    tried = []
    for one in search.tries():
        on_tried(one)
        tried.append(one)
        if one.fits:
            return Advice(tried=tuple(tried), reason=search.reason, found=one)
    return Advice(tried=tuple(tried), reason=search.reason)


class _Search:
    def __init__(
        self,
        compiler: Compiles,
        result: Result,
        timeout_seconds: float | None,
        on_try: Callable[[str], None],
    ):
        assert result.facts is not None
        self.compiler, self.on_try = compiler, on_try
        patience = max(_LEAST_PATIENCE_SECONDS, _PATIENCE * result.compile_seconds)
        self.timeout = patience if timeout_seconds is None else min(timeout_seconds, patience)
        self.job, self.facts = result.job, result.facts
        self.memory = device_memory(result, self.facts)
        self.kept: list[Change] = []
        self.reason = _state_alone(self.memory)

    def tries(self) -> Iterator[Tried]:
        from gshard_train.precompiling.configuration import batch_parameter, configured

        found = configured(self.job)
        experiment = self.job.layout.applied(found.experiment)
        parameter = batch_parameter(found)
        # What lowers activations alone waits until the state is no longer too large by itself.
        waiting: list[Callable[[], Rung]] = []
        for make in ladder(experiment, self.job, self.facts, lambda: self.memory, parameter):
            if self.reason and not make().lowers_state:
                waiting.append(make)
                continue
            yield from self._rung(make())
            while waiting and not self.reason:
                yield from self._rung(waiting.pop(0)())

    def _rung(self, rung: Rung) -> Iterator[Tried]:
        """Tries the changes of a rung; the last one that helped stays."""
        if rung.useless:
            what, _, why = rung.useless.partition(": ")
            yield Tried(what=what, outcome=f"not tried: {why}")
        before, helped = self.kept, False
        for change in rung.changes:
            changes = [*before, change]
            tried, memory = self._try(changes, lowers_state=rung.lowers_state)
            yield tried
            if memory is not None and _less(memory, self.memory):
                self.kept, self.memory, helped = changes, memory, True
                self.reason = self.reason and _state_alone(memory)
            elif helped:
                return

    def _try(
        self, changes: list[Change], *, lowers_state: bool
    ) -> tuple[Tried, DeviceMemory | None]:
        job = self.job
        for change in changes:
            job = change.applied(job)
        parts = {
            "what": ", and ".join(change.what for change in changes),
            "flags": tuple(flag for change in changes for flag in change.flags()),
            "cautions": tuple(change.caution for change in changes if change.caution),
        }
        described = self.compiler.describe(job)
        if described.facts is None:
            why = described.fault.message if described.fault else "nothing is known of it"
            return Tried(**parts, outcome=f"cannot be: {why}"), None
        memory = device_memory(described, described.facts)
        if reason := _state_alone(memory):
            return Tried(**parts, outcome=reason), memory
        if lowers_state and not _smaller_state(memory, self.memory):
            return Tried(**parts, outcome="the state on a device stays as large"), None
        self.on_try(parts["what"])
        return self._compiled(job, parts)

    def _compiled(self, job: Job, parts: dict) -> tuple[Tried, DeviceMemory | None]:
        result = self.compiler.compile(job, timeout_seconds=self.timeout)
        if result.facts is None:
            why = result.fault.message if result.fault else "nothing is known of it"
            return Tried(**parts, outcome=f"cannot be: {why}"), None
        memory = device_memory(result, result.facts)
        fits, said = verdict(memory, result.fault)
        seconds = result.report.cost.step_seconds if result.report else None
        speed = result.facts.source_tokens / seconds if seconds else None
        outcome = _room(memory) or said
        run = "step" if job.mode == "train" else "batch"
        outcome += f", {duration(seconds)} a {run} (estimate)" if seconds else ""
        tried = Tried(
            **parts,
            outcome=outcome,
            fits=fits,
            peak_bytes=memory.peak,
            step_seconds=seconds,
            tokens_per_second=speed,
        )
        return tried, memory if memory.peak is not None else None


def _room(memory: DeviceMemory) -> str:
    if memory.peak is None or memory.free is None:
        return ""
    left = f"{size(memory.free)} free" if memory.free >= 0 else f"{size(-memory.free)} too much"
    return f"{size(memory.peak)}, {left}"


def _state_alone(memory: DeviceMemory) -> str:
    """That no change to activations can help, where it is so."""
    if memory.limit is None or memory.state <= memory.limit:
        return ""
    return (
        f"parameters and optimizer alone take {size(memory.state)} of {size(memory.limit)}; "
        "recomputing activations and smaller parts of a batch cannot help"
    )


def _less(memory: DeviceMemory, than: DeviceMemory) -> bool:
    """Whether a need is worth its change; without a peak it is the state that counts."""
    if memory.peak is None or than.peak is None:
        return _smaller_state(memory, than)
    return memory.peak < (1 - _HELPS) * than.peak


def _smaller_state(memory: DeviceMemory, than: DeviceMemory) -> bool:
    return memory.state < (1 - _HELPS) * than.state
