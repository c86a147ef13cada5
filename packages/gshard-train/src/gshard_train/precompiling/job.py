"""What is compiled for an absent machine, and what is known of it afterwards; both are JSON."""

import dataclasses
from collections.abc import Mapping
from typing import Literal

from gshard_annotate.inspector.report import Report
from gshard_train.precompiling.layout import Layout

Mode = Literal["train", "eval", "decode"]
FaultKind = Literal["refused", "too large", "failed", "crashed", "timed out"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One program to compile.

    Attributes:
      gin_files: as --gin_file, in order.
      gin_bindings: as --gin_bindings.
      gin_search_paths: as --gin_search_paths.
      topology: a TPU machine by the compiler's name, as "v3:32x32".
      num_slices: how many of them.
      mode: which program of the run.
      layout: what is otherwise than in the gin files.
      save_program: where to write the compiled program.
    """

    gin_files: tuple[str, ...]
    gin_bindings: tuple[str, ...] = ()
    gin_search_paths: tuple[str, ...] = ()
    topology: str
    num_slices: int = 1
    mode: Mode = "train"
    layout: Layout = dataclasses.field(default_factory=Layout)
    save_program: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tensor:
    """An array that lies on the devices between programs.

    Attributes:
      what: `parameters`, `optimizer` or `batch`. Kept keys and values are the program's own.
      name: its path.
      shape: its whole shape.
      dtype: of its elements.
      split: mesh axes of each dimension, as "expert - model"; "-" where it is not split.
      device_bytes: what one device holds of it.
      on_host: whether it lies in the memory of the devices' hosts between programs.
    """

    what: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    split: str
    device_bytes: int
    on_host: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a program before it is compiled.

    Attributes:
      num_devices: JAX devices of the machine; on TPU v3 one is a core.
      device_kind: as JAX names it.
      mesh: size of each axis, in order.
      parameters: of the model.
      expert_parameters: those in experts.
      active_parameters: those that one token passes through.
      batch_size: rows of a global batch.
      source_tokens: of a full global batch.
      target_tokens: likewise.
      model_flops: of all devices in one run of the program, by the model (no padding of slots,
        nothing computed again); see `monitoring.utilisation`.
      tensors: everything that lies on the devices, largest first.
    """

    num_devices: int
    device_kind: str
    mesh: Mapping[str, int]
    parameters: int
    expert_parameters: int
    active_parameters: int
    batch_size: int
    source_tokens: int
    target_tokens: int
    model_flops: float
    tensors: tuple[Tensor, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Allocation:
    """A piece of memory that the compiler names when a program is too large.

    Attributes:
      bytes: its size on one device.
      shape: as the compiler writes it, as "f32[16,2048,2048]".
      op_name: of the operation that makes it; "" for arguments.
      source: file and line, where the compiler tells; else "".
    """

    bytes: int
    shape: str
    op_name: str
    source: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """Why there is no program.

    Attributes:
      kind: `refused` by the checks before compiling, `too large` for the chip, `failed` with an
        error of tracing or of the compiler, `crashed` (its process died) or `timed out`.
      message: for the user, as many lines as there are faults.
      needed_bytes: of memory on one device, where it is too large.
      limit_bytes: what the device has for programs.
      allocations: large ones that overlap nowhere, largest first; not all of them need be there
        at one time.
    """

    kind: FaultKind
    message: str
    needed_bytes: int | None = None
    limit_bytes: int | None = None
    allocations: tuple[Allocation, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What became of a job.

    Attributes:
      job: what was asked.
      facts: None where the job was refused.
      report: the inspector's, of the compiled program; None where there is a fault.
      fault: None where there is a program.
      lower_seconds: of tracing and lowering, also where it came to no end.
      compile_seconds: of the compiler, likewise.
      host_peak_bytes: largest resident memory of the process that compiled; 0 where nobody knows.
      save_fault: why the program was not written where `job.save_program` says; "" where it was,
        or was not to be.
    """

    job: Job
    facts: Facts | None = None
    report: Report | None = None
    fault: Fault | None = None
    lower_seconds: float = 0.0
    compile_seconds: float = 0.0
    host_peak_bytes: int = 0
    save_fault: str = ""
