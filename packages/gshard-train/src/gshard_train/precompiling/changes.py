"""A change to a job, as a user makes it with flags, and changes of one kind."""

import dataclasses
from collections.abc import Mapping

from gshard_train.precompiling.job import Job

# Less than this share of a device's memory is not worth a compile of its own.
WORTH = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """One change to a job, as a user makes it with flags.

    Attributes:
      what: it does, in words.
      bindings: gin statements.
      gin_files: further files.
      topology: another machine.
      mesh: another mesh, instead of that of the job's layout.
      caution: what else it changes than memory and speed; "" for nothing.
    """

    what: str
    bindings: tuple[str, ...] = ()
    gin_files: tuple[str, ...] = ()
    topology: str | None = None
    mesh: Mapping[str, int] | None = None
    caution: str = ""

    def applied(self, job: Job) -> Job:
        """The job with the change."""
        layout = (
            job.layout if self.mesh is None else dataclasses.replace(job.layout, mesh=self.mesh)
        )
        return dataclasses.replace(
            job,
            gin_files=(*job.gin_files, *self.gin_files),
            gin_bindings=(*job.gin_bindings, *self.bindings),
            topology=self.topology or job.topology,
            layout=layout,
            save_program=None,
        )

    def flags(self) -> list[str]:
        """The same for a command line."""
        found = [f"--gin_file={file}" for file in self.gin_files]
        found += map(_gin_flag, self.bindings)
        if self.topology:
            found.append(f"--topology={self.topology}")
        if self.mesh:
            axes = ",".join(f"{axis}={count}" for axis, count in self.mesh.items())
            found.append(f"--mesh={axes}")
        return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rung:
    """Changes of one kind.

    Attributes:
      changes: weakest first; none where `useless` says why.
      useless: why it is not tried.
      lowers_state: whether it can help where parameters and optimizer alone are too much.
    """

    changes: tuple[Change, ...] = ()
    useless: str = ""
    lowers_state: bool = False


def _gin_flag(binding: str) -> str:
    name, _, value = (part.strip() for part in binding.partition("="))
    text = value.replace('"', "'")
    return f'--gin.{name}="{text}"' if "'" in text else f"--gin.{name}={text}"
