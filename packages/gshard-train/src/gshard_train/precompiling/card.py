"""The cost card: what a run would take on a machine, from its program compiled for that machine.

Counts of parameters, bytes and FLOPs are exact. Seconds, and all that follows from them, are
estimates: `ESTIMATE` says of what.
"""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path

from gshard_annotate.inspector.chips import Chip, find_chip
from gshard_annotate.inspector.grouping import surprise_groups
from gshard_annotate.inspector.report import Report
from gshard_train.precompiling.advice import Advice
from gshard_train.precompiling.breakdown import breakdown
from gshard_train.precompiling.exchange_sums import ExchangeSum, summed
from gshard_train.precompiling.job import Facts, Job, Mode, Result
from gshard_train.precompiling.rooms import Room, rooms
from gshard_train.precompiling.verdict import DeviceMemory, device_memory, verdict

ESTIMATE = (
    "for each operation the longest of matrix products, other arithmetic and memory traffic at the "
    "chip's peak, then all exchanges one after the other at their links' bandwidth; nothing waits "
    "(a floor), and nothing overlaps with exchanges"
)
_DAY, _YEAR_DAYS = 86_400, 365


@dataclasses.dataclass(frozen=True, kw_only=True)
class CostCard:
    """What a program costs.

    Attributes:
      title: of the model: its first gin file's name.
      job: what was compiled.
      num_devices: of the machine; on TPU v2 and v3 a device is one of a chip's two cores.
      device_kind: as JAX names it.
      chip: whose figures the estimate uses; None where there is none.
      mesh: size of each axis.
      parameters: of the model.
      expert_parameters: those in experts.
      active_parameters: those that one token passes through.
      batch_size: rows of a global batch.
      source_tokens: of a full global batch.
      target_tokens: likewise.
      memory: bytes on one device.
      fits: whether the program fits on a device; None where the compiler came to no end.
      verdict: that in a sentence.
      rooms: what takes most of the memory, largest first.
      device_flops: of the compiled program on one device: padding, recomputation and one-hot
        matmuls counted. None without a program, as are the next down to `utilisation`.
      model_flops: that the model needs, of all devices (`monitoring.utilisation`).
      step_seconds: of one run of the program (a step, or a batch), the estimate.
      parts: seconds of each part of it.
      exchanges: the collectives, most seconds first.
      tokens_per_second: source tokens, as the paper counts.
      utilisation: model FLOPs of a second as a share of the chips' peak.
      tokens: how many source tokens are asked about.
      steps: that they take, or batches.
      days: likewise.
      device_years: days times devices, in years of 365 days.
      price: of a device-hour; None where none was given.
      money: for all of it.
      surprises: exchanges and values that nobody asked for, alike ones as one.
      lower_seconds: of tracing and lowering.
      compile_seconds: of the compiler.
      host_peak_bytes: largest resident memory of the process that compiled.
      fault: why there is no program, else "".
      notes: what a reader should know about the figures.
      advice: what would make it fit, where that was looked for.
    """

    title: str
    job: Job
    num_devices: int
    device_kind: str
    chip: str | None
    mesh: Mapping[str, int]
    parameters: int
    expert_parameters: int
    active_parameters: int
    batch_size: int
    source_tokens: int
    target_tokens: int
    memory: DeviceMemory
    fits: bool | None
    verdict: str
    rooms: tuple[Room, ...]
    device_flops: float | None
    model_flops: float
    step_seconds: float | None
    parts: Mapping[str, float]
    exchanges: tuple[ExchangeSum, ...]
    tokens_per_second: float | None
    utilisation: float | None
    tokens: float
    steps: int
    days: float | None
    device_years: float | None
    price: float | None
    money: float | None
    surprises: tuple[str, ...]
    lower_seconds: float
    compile_seconds: float
    host_peak_bytes: int
    fault: str
    notes: tuple[str, ...]
    advice: Advice | None = None

    @property
    def mode(self) -> Mode:
        """Which program of the run it is."""
        return self.job.mode

    @property
    def is_compiled(self) -> bool:
        """Whether there is a program."""
        return self.device_flops is not None

    @property
    def rows_per_second(self) -> float | None:
        """Examples a second."""
        return None if self.step_seconds is None else self.batch_size / self.step_seconds

    def text(self) -> str:
        """The card in lines of 120 letters at most."""
        from gshard_train.precompiling.card_text import card_text

        return card_text(self)

    def json(self) -> str:
        """The card as JSON: a `version`, and the attributes by their names."""
        from gshard_train.precompiling.card_json import card_json

        return card_json(self)

    def html(self) -> str:
        """The card as one page that needs nothing beside itself."""
        from gshard_train.precompiling.card_page import card_page

        return card_page(self)


def cost_card(result: Result, *, tokens: float = 1e12, price: float | None = None) -> CostCard:
    """What a compiled program costs, or as much as is known of one that could not be compiled.

    Args:
      result: of compiling it.
      tokens: source tokens that are to be trained on, or read.
      price: money for an hour of one device (on TPU v3 a core).

    Raises:
      ValueError: the job was refused, so that nothing is known of it; or no tokens, or a price
        below 0.
    """
    facts, report, fault = result.facts, result.report, result.fault
    _check(result, tokens, price)
    assert facts is not None
    memory = device_memory(result, facts)
    fits, said = verdict(memory, fault)
    seconds = report.cost.step_seconds if report else None
    steps = math.ceil(tokens / facts.source_tokens)
    days = None if seconds is None else steps * seconds / _DAY
    return CostCard(
        title=title_of(result.job),
        job=result.job,
        chip=report.chip if report else None,
        **{name: getattr(facts, name) for name in _SAME_IN_FACTS},
        memory=memory,
        fits=fits,
        verdict=said,
        rooms=rooms(result, facts),
        device_flops=report.cost.flops if report else None,
        step_seconds=seconds,
        parts=_parts(report),
        exchanges=summed(report.exchanges) if report else (),
        tokens_per_second=facts.source_tokens / seconds if seconds else None,
        utilisation=_utilisation(facts, report),
        tokens=tokens,
        steps=steps,
        days=days,
        device_years=None if days is None else days * facts.num_devices / _YEAR_DAYS,
        price=price,
        money=None if days is None or price is None else days * 24 * facts.num_devices * price,
        surprises=tuple(one.sentence for one in surprise_groups(report)) if report else (),
        lower_seconds=result.lower_seconds,
        compile_seconds=result.compile_seconds,
        host_peak_bytes=result.host_peak_bytes,
        fault=fault.message if fault else "",
        notes=report.notes if report else (),
    )


_SAME_IN_FACTS = (
    "num_devices",
    "device_kind",
    "mesh",
    "parameters",
    "expert_parameters",
    "active_parameters",
    "batch_size",
    "source_tokens",
    "target_tokens",
    "model_flops",
)


def title_of(job: Job) -> str:
    """What to call the model: the name of its first gin file."""
    return Path(job.gin_files[0]).stem if job.gin_files else "the model"


def _check(result: Result, tokens: float, price: float | None) -> None:
    if result.facts is None:
        why = result.fault.message if result.fault else "there is neither a program nor a fault"
        raise ValueError(f"cost_card: nothing is known of {title_of(result.job)}: {why}")
    if not 0 < tokens < math.inf:
        raise ValueError(f"cost_card: tokens={tokens!r}; give a number above 0, such as 1e12")
    if price is not None and not 0 <= price < math.inf:
        raise ValueError(f"cost_card: price={price!r} a device-hour; give 0 or more, or None")


def _parts(report: Report | None) -> dict[str, float]:
    if report is None or report.cost.step_seconds is None:
        return {}
    return breakdown(report)


def _utilisation(facts: Facts, report: Report | None) -> float | None:
    if report is None or not report.chip or not report.cost.step_seconds:
        return None
    peak = _chip(report.chip).flops * facts.num_devices
    return facts.model_flops / (report.cost.step_seconds * peak)


def _chip(name: str) -> Chip:
    """The chip of a report, which may be half of one that is known."""
    found = find_chip(name)
    return found.half() if name.endswith(" core") and found.name != name else found
