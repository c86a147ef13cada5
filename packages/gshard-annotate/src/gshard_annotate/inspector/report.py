"""The report of `inspect`: what was asked, what was compiled, what it moves, holds and costs.

Bytes, FLOPs and seconds are those of one device and one call of the function. Loop bodies count as
often as they run.
"""

import dataclasses
from pathlib import Path

from gshard_annotate.inspector.collectives import Collective
from gshard_annotate.inspector.frames import Source as Source


@dataclasses.dataclass(frozen=True)
class Value:
    """One argument, result or annotated value of the program.

    Attributes:
      role: `argument`, `result` or `annotation`.
      name: Its path among the arguments or results (`params['wi']`), or the annotation's label
        (`annotate[batch,-,embed]`).
      shape: Its logical type and shape, as `f32[8,64]`.
      asked: The sharding that was asked for, as `P('data', None)`; None when it was left open.
      compiled: The sharding that it has in the compiled program; None when it is not in there.
      bytes: Size of the whole value.
      bytes_per_device: Size of what one device holds of it.
      times: How often the program makes it: 1, or the trips of the loops around it.
      source: Where it was annotated.
      note: What is wrong when the compiler did otherwise than asked; empty when it did as asked.
      accepted: What was wrong, when the user accepted it.
    """

    role: str
    name: str
    shape: str
    asked: str | None
    compiled: str | None
    bytes: int
    bytes_per_device: int
    times: int = 1
    source: Source | None = None
    note: str = ""
    accepted: str = ""

    @property
    def sentence(self) -> str:
        """The surprise that it is."""
        return f"{self.name} {self.shape}: {self.note or self.accepted}"


@dataclasses.dataclass(frozen=True)
class Exchange:
    """A collective of the program, with what caused it.

    Attributes:
      collective: The instruction: kind, shape and bytes on one device, computation, op_name.
      mesh_axes: The mesh axes whose devices take part, as `('data', 'expert')`; empty when the
        groups are not those of mesh axes.
      group_size: How many devices exchange with each other.
      times: How often it runs: 1, or the trips of the loops around it.
      seconds: Estimate for all runs, from the bytes that cross a link; None without a chip.
      share: Its part of the estimated step, 0 to 1; None without a chip.
      source: The line of the user's program that it came from.
      cause: The annotation that caused it, as `annotate[expert,-,mlp] at layers.py:40`, or
        "" when none could be found.
      surprise: A sentence when nobody asked for it (`all-gather of 64 MiB at layers.py:88: wi is
        split on 'expert' but used replicated`), else "".
      accepted: That sentence, when the user accepted it.
    """

    collective: Collective
    mesh_axes: tuple[str, ...]
    group_size: int
    times: int
    seconds: float | None
    share: float | None
    source: Source | None
    cause: str
    surprise: str
    accepted: str = ""


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes on one device.

    Attributes:
      arguments: What the arguments take.
      results: What the results take, donated arguments included.
      temporaries: What the program takes while it runs.
      aliased: The part of the results that lies in donated arguments.
      peak: The most at one time: arguments, results and temporaries, less what is aliased.
      limit: What the chip has; None without a chip.
    """

    arguments: int
    results: int
    temporaries: int
    aliased: int
    peak: int
    limit: int | None = None


@dataclasses.dataclass(frozen=True)
class Cost:
    """Work of one device in one call, and the roofline estimate of its time.

    Attributes:
      flops: Floating-point operations of matrix products and convolutions.
      bytes_accessed: Bytes that fused operations read and write in main memory.
      compute_seconds: Time of `flops` at the chip's peak; None without a chip, as are the next.
      memory_seconds: Time of `bytes_accessed` at the chip's memory bandwidth.
      collective_seconds: Time of all exchanges, one after the other.
      step_seconds: For each operation the longest of compute, other arithmetic and memory,
        summed, and the exchanges. Nothing overlaps with the exchanges, nothing waits.
    """

    flops: float
    bytes_accessed: float
    compute_seconds: float | None = None
    memory_seconds: float | None = None
    collective_seconds: float | None = None
    step_seconds: float | None = None


@dataclasses.dataclass(frozen=True)
class Operation:
    """The work of all instructions that come from one operation of the user's program.

    A fusion's work goes to the matrix products in it, or is divided by bytes; what has no scope of
    its own goes to the one that made its operands, else to the one that uses it. Collectives are
    not among them.

    Attributes:
      scope: The `jax.named_scope`s around it, as `attention/projections`; "" outside of any.
      primitive: JAX's name of it, as `dot_general`; XLA's for what XLA put in.
      backward: Whether it is part of a gradient.
      recomputed: Whether the backward pass computes it again (`jax.checkpoint`).
      times: How often its instructions run, all together.
      flops: Of matrix products and convolutions.
      bytes_accessed: Read and written in main memory.
      seconds: Estimate; None without a chip.
    """

    scope: str
    primitive: str
    backward: bool
    recomputed: bool
    times: int
    flops: int
    bytes_accessed: int
    seconds: float | None


@dataclasses.dataclass(frozen=True)
class Report:
    """What `inspect` found out about one compiled function.

    Attributes:
      title: The function's name.
      platform: `cpu`, `tpu` or `gpu`.
      chip: The chip of the estimate, as `TPU v3 core`; None when none was named or known.
      mesh: Size of each mesh axis by name.
      values: Arguments, results and annotated values, in the program's order.
      exchanges: Every collective, those with a surprise first, then by bytes moved.
      memory: Bytes on one device.
      cost: Work and estimated time of one device.
      compile_seconds: How long the compiler took.
      notes: What the reader should know about the figures: loops whose trips nobody can tell,
        values that could not be seen.
      operations: The work of `cost` by the operations that it comes from, longest first.
    """

    title: str
    platform: str
    chip: str | None
    mesh: dict[str, int]
    values: tuple[Value, ...]
    exchanges: tuple[Exchange, ...]
    memory: Memory
    cost: Cost
    compile_seconds: float
    notes: tuple[str, ...] = ()
    operations: tuple[Operation, ...] = ()

    @property
    def surprises(self) -> list[str]:
        """What nobody asked for: exchanges, worst first, then values not split as asked."""
        found = [one.surprise for one in self.exchanges if one.surprise]
        return found + [value.sentence for value in self.values if value.note]

    @property
    def accepted(self) -> list[str]:
        """The surprises that the user accepted."""
        found = [one.accepted for one in self.exchanges if one.accepted]
        return found + [value.sentence for value in self.values if value.accepted]

    def accepting(self, *patterns: str) -> "Report":
        """The report in which surprises that the user allows are none.

        A note names each pattern that fits no surprise.

        Args:
          *patterns: Parts of the sentences to allow, as `params['wi'] is split on 'data'`; `*`
            stands for any text.

        Raises:
          ValueError: A pattern that would allow everything.
        """
        from gshard_annotate.inspector.acceptance import accept

        return accept(self, patterns)

    def text(self) -> str:
        """The report in lines to read: surprises, collectives, values, memory and work."""
        from gshard_annotate.inspector.text import report_text

        return report_text(self)

    def __str__(self) -> str:
        return self.text()

    def json(self) -> str:
        """The whole report as JSON, which `from_json` reads."""
        from gshard_annotate.inspector.json_form import report_json

        return report_json(self)

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """The report that `json` wrote.

        Raises:
          ValueError: Not a report, one of another version, or one with wrong parts.
        """
        from gshard_annotate.inspector.json_form import report_from_json

        return report_from_json(text)

    def html(self) -> str:
        """The report as one page that needs nothing beside itself."""
        from gshard_annotate.inspector.report_page import page

        return page(self)

    def write_json(self, path: str | Path) -> Path:
        """Writes `json()`, whole or not at all."""
        from gshard_annotate.inspector.json_form import write_beside

        return write_beside(path, self.json())

    def write_html(self, path: str | Path) -> Path:
        """Writes `html()`, whole or not at all."""
        from gshard_annotate.inspector.json_form import write_beside

        return write_beside(path, self.html())
