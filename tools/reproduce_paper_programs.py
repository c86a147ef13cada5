"""The programs of the paper's models, each compiled once for its machine and kept in a folder.

A file of results is used again while it is of the same job, the same sources of the packages and
the same compiler; `reuse` takes it whatever the sources are.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import paper_figures
from gshard_train.precompiling.compiler import Compiler, Progress
from gshard_train.precompiling.job import Job, Result
from gshard_train.precompiling.job_json import job_json, result_from_json, result_json
from gshard_train.precompiling.sources import sources, versions

TOKENS_PER_CORE = 2048  # of a step, where the load is to be the same on any number of cores
ROW = 256  # tokens
FULL_LOAD = {16: "v3:2x4", 32: "v3:4x4", 128: "v3:8x8", 512: "v3:16x16", 2048: "v3:32x32"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled:
    """A program, or why there is none.

    Attributes:
      result: of the compiler.
      cpu_seconds: of its process, start and inspection included.
      load: processes that ran or waited when it began, of all that the machine ran.
      sources: of the packages, as a hash.
      versions: of the compiler.
    """

    result: Result
    cpu_seconds: float
    load: float
    sources: str
    versions: Mapping[str, str]


def fixed_load(experts: int, layers: int) -> Job:
    """The model with that many experts on as many cores, with `TOKENS_PER_CORE`.

    Where a file of Table 1 has that load it is that file's program.
    """
    topology = FULL_LOAD[experts]
    for model in paper_figures.MODELS.values():
        load = model.batch_tokens / model.cores
        if (model.experts, model.layers, load) == (experts, layers, TOKENS_PER_CORE):
            return Job(gin_files=(_file(model.gin),), topology=topology)
    # 24 layers are in Figure 7 alone, without anything computed again.
    near = 36 if layers == 24 else layers
    bindings = [
        f"NUM_EXPERTS = {experts}",
        f"MESH_AXES = {{'data': 1, 'expert': {experts}}}",
        f"BATCH_SIZE = {experts * TOKENS_PER_CORE // ROW}",
    ]
    if layers == 24:
        half = "gshard_train.models.config.TransformerConfig"
        bindings += [f"{half}.num_encoder_layers = 12", f"{half}.num_decoder_layers = 12"]
        bindings += [f"{half}.remat = 'none'"]
    return Job(
        gin_files=(_file(f"moe_2048e_{near}l"),), gin_bindings=tuple(bindings), topology=topology
    )


def shipped(model: paper_figures.Model) -> Job:
    """A row of Table 1 as its file has it."""
    return Job(gin_files=(_file(model.gin),), topology=FULL_LOAD[model.cores])


def title(job: Job) -> str:
    """The job in a few words."""
    words = [pathlib.Path(job.gin_files[0]).stem, "on", job.topology]
    changed = [one.split(".")[-1].replace(" ", "") for one in job.gin_bindings]
    return " ".join(words) + (f" with {', '.join(changed)}" if changed else "")


def _say(line: str) -> None:
    print(line, flush=True)


def _show(progress: Progress) -> None:
    """One line that is written over again."""
    said = f"  {progress.doing}, {progress.seconds:.0f} s, {progress.host_bytes / 2**30:.1f} GiB"
    print(f"\r{said:<60}\r", end="", flush=True)


class Programs:
    """Compiles what is asked for, or takes it out of the folder."""

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        timeout_seconds: float,
        reuse: bool = False,
        say: Callable[[str], None] = _say,
    ):
        self._folder, self._timeout_seconds = folder, timeout_seconds
        self._reuse, self._say = reuse, say

    def all_of(self, jobs: Sequence[Job]) -> dict[Job, Compiled]:
        """Each job's program, those that nobody compiled yet one after the other."""
        jobs = list(dict.fromkeys(jobs))
        found = {job: kept for job in jobs if (kept := self._kept(job))}
        left = [job for job in jobs if job not in found]
        if found:
            self._say(f"{len(found)} of {len(jobs)} programs are in {self._folder}")
        for number, job in enumerate(left, 1):
            self._say(f"compiling {title(job)} ({number} of {len(left)})")
            found[job] = self._compile(job)
            self._say(f"  {_outcome(found[job])}")
        return found

    def _compile(self, job: Job) -> Compiled:
        load, before, start = os.getloadavg()[0], _children_seconds(), time.monotonic()
        # A process for each program, so that its CPU time and memory are its own.
        with Compiler(on_progress=_show if sys.stdout.isatty() else None) as compiler:
            result = compiler.compile(job, timeout_seconds=self._timeout_seconds)
        made = Compiled(
            result=result,
            cpu_seconds=_children_seconds() - before,
            load=load,
            sources=sources(),
            versions=versions(),
        )
        self._say(f"  {time.monotonic() - start:.0f} s in all")
        if result.fault is None or result.fault.kind in ("refused", "too large"):
            self._write(job, made)
        return made

    def _kept(self, job: Job) -> Compiled | None:
        path = self._path(job)
        try:
            form = json.loads(path.read_text("utf-8"))
            result = result_from_json(json.dumps(form.pop("result")))
            kept = Compiled(result=result, **form)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._say(f"{path} is no program's result ({error}); compiling again")
            return None
        if self._reuse or (kept.sources, kept.versions) == (sources(), versions()):
            return kept
        self._say(f"{path} is of other sources or another compiler (--reuse would take it)")
        return None

    def _write(self, job: Job, made: Compiled) -> None:
        form = {name: getattr(made, name) for name in ("cpu_seconds", "load", "sources")}
        form |= {"versions": dict(made.versions)}
        form["result"] = json.loads(result_json(made.result))
        path = self._path(job)
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(form, indent=1) + "\n", "utf-8")
        new.replace(path)

    def _path(self, job: Job) -> pathlib.Path:
        stem = pathlib.Path(job.gin_files[0]).stem
        digest = hashlib.sha256(job_json(job).encode()).hexdigest()[:12]
        return self._folder / f"{stem}-{job.topology.replace(':', '-')}-{digest}.json"


def _file(name: str) -> str:
    return f"gshard_train/configs/models/{name}.gin"


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _outcome(made: Compiled) -> str:
    result = made.result
    if result.fault is not None:
        said = result.fault.message.partition("\n")[0]
        return f"{result.fault.kind}: {said}"
    seconds = result.lower_seconds + result.compile_seconds
    return (
        f"{seconds:.0f} s to lower and compile, {made.cpu_seconds:.0f} CPU seconds, "
        f"{result.host_peak_bytes / 2**30:.1f} GiB of the host's memory"
    )
