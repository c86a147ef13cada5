"""From a function to its report: lower it, compile it, read what the compiler wrote."""

import dataclasses
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding

from gshard_annotate.inspector.acceptance import check_patterns
from gshard_annotate.inspector.analysis import Dump, analyse
from gshard_annotate.inspector.chips import Chip, chip_of, find_chip
from gshard_annotate.inspector.entry_checks import (
    check_arguments,
    check_mesh,
    check_program_mesh,
    refuse_with_lowered,
    told_when_too_large,
)
from gshard_annotate.inspector.hlo import parse
from gshard_annotate.inspector.report import Report
from gshard_annotate.inspector.too_large import TooLargeError, read_pieces

# The pass that finds the shardings nobody gave; XLA writes the program before and after it.
_PASS = "shardy-xla"


def inspect(
    fn: Any,
    *args: Any,
    mesh: Mesh | None = None,
    chip: str | Chip | None = None,
    kwargs: Mapping[str, Any] | None = None,
    static_argnums: int | Sequence[int] = (),
    donate_argnums: int | Sequence[int] = (),
    in_shardings: Any = None,
    out_shardings: Any = None,
    accept: str | Sequence[str] = (),
) -> Report:
    """The report about a function: what was asked, what was compiled, what it moves and costs.

    The function is compiled and not run. It compiles for the devices of the mesh, which need not
    be there: those of `jax.experimental.topologies.get_topology_desc` will do.

    Args:
      fn: A function, a jitted one, or what its `lower` returned (then without `args`).
      *args: Its arguments: arrays, numbers, or `jax.ShapeDtypeStruct` with shape, dtype and, where
        it matters, sharding.
      mesh: Where it runs; when not given the mesh of `jax.set_mesh`, of the arguments' or the
        given shardings, or of the annotations.
      chip: For which chip to estimate times (`v3`, `H100`, or a `Chip`); on a TPU the one at hand.
      kwargs: Its keyword arguments.
      static_argnums: As for `jax.jit`, as are the next; not for a function already jitted.
      donate_argnums: Arguments whose memory the results may take.
      in_shardings: Shardings of the arguments.
      out_shardings: Shardings of the results.
      accept: Parts of the sentences of surprises to allow, as in `Report.accepting`.

    Raises:
      ValueError: Several devices and no mesh; a mesh other than that of the annotations; an
        unknown chip; a function that cannot be traced with these arguments; options of `jax.jit`
        for a function already jitted.
      TypeError: Something that is no function, or no mesh; an argument without a shape.
      MemoryError: The compiler found that the program does not fit on the chip; a
        `too_large.TooLargeError`, which has the largest arrays.
    """
    chip = None if chip is None else find_chip(chip)
    check_mesh("inspect", mesh)
    patterns = (accept,) if isinstance(accept, str) else tuple(accept)
    check_patterns("inspect", patterns)
    options = _given(
        static_argnums=static_argnums,
        donate_argnums=donate_argnums,
        in_shardings=in_shardings,
        out_shardings=out_shardings,
    )
    if isinstance(fn, jax.stages.Lowered):
        refuse_with_lowered(args, kwargs, options)
        lowered, title, wanted = fn, "", mesh
    else:
        check_arguments(fn, args, kwargs or {}, static_argnums)
        found = mesh or _find_mesh((args, kwargs, in_shardings, out_shardings))
        with nullcontext() if mesh is None else jax.set_mesh(mesh):
            lowered = _lower(fn, args, kwargs or {}, found, options)
        mesh, title, wanted = found, _title(fn), mesh
    check_program_mesh(lowered, wanted, title)
    with _without_cache() as apart, told_when_too_large(title, mesh):
        compiled, dump, seconds = _compile(lowered, apart)
    return _report(compiled, dump, mesh, chip, title, seconds).accepting(*patterns)


def inspect_lowered(
    lowered: jax.stages.Lowered,
    *,
    mesh: Mesh | None = None,
    chip: str | Chip | None = None,
    title: str = "",
    compiler_options: Mapping[str, Any] | None = None,
    assumed_trips: int = 1,
) -> tuple[jax.stages.Compiled, Report]:
    """The compiled function and its report, from one run of the compiler.

    A program that comes from JAX's compilation cache is reported as by `inspect_compiled`.

    Args:
      lowered: What `jax.jit(fn).lower(...)` returned.
      mesh: Where it runs, when not to be read off the program.
      chip: For which chip to estimate times; on a TPU the one at hand.
      title: What the report calls the function.
      compiler_options: Further options for XLA.
      assumed_trips: How often loops count whose trips depend on data.

    Raises:
      ValueError: A program for one device although there are several and no mesh; a mesh other
        than that of the annotations; an unknown chip.
      MemoryError: The compiler found that the program does not fit on the chip; a
        `too_large.TooLargeError`, which has the largest arrays.
    """
    chip = None if chip is None else find_chip(chip)
    check_mesh("inspect_lowered", mesh)
    check_program_mesh(lowered, mesh, title)
    with told_when_too_large(title, mesh):
        compiled, dump, seconds = _compile(lowered, compiler_options or {})
    return compiled, _report(compiled, dump, mesh, chip, title, seconds, assumed_trips)


def inspect_compiled(
    compiled: jax.stages.Compiled,
    *,
    mesh: Mesh | None = None,
    chip: str | Chip | None = None,
    title: str = "",
) -> Report:
    """The report about a function that is compiled already.

    Without the steps of the compiler, which `inspect_lowered` sees, it lacks the annotated values,
    and what arguments and results were asked to be; causes are those in the operations' names.

    Args:
      compiled: What `lowered.compile()` returned.
      mesh: Where it runs, when not to be read off the program.
      chip: For which chip to estimate times; on a TPU the one at hand.
      title: What the report calls the function.
    """
    chip = None if chip is None else find_chip(chip)
    check_mesh("inspect_compiled", mesh)
    return _report(compiled, None, mesh, chip, title, 0.0)


def _report(
    compiled, dump: Dump | None, mesh, chip, title: str, seconds: float, assumed_trips: int = 1
) -> Report:
    mesh = mesh or _find_mesh((compiled.input_shardings, compiled.output_shardings))
    devices = [] if mesh is None else list(mesh.devices.flat)
    final = parse((dump and dump.final) or compiled.as_text() or "")
    sizes = dict(mesh.shape) if mesh is not None else {}
    if final.num_partitions == 1 and jax.device_count() > 1 and mesh is None:
        raise ValueError(
            f"inspect: no mesh, and {jax.device_count()} devices; the program uses one of them. "
            "Pass mesh=, enter `jax.set_mesh(mesh)`, or give the arguments shardings"
        )
    report = analyse(
        compiled,
        final,
        dump,
        sizes,
        devices,
        chip or chip_of(devices),
        title,
        jax.default_backend(),
        assumed_trips,
    )
    return dataclasses.replace(report, compile_seconds=seconds)


def _lower(fn, args, kwargs, mesh: Mesh | None, options: dict[str, Any]) -> jax.stages.Lowered:
    jitted = fn if hasattr(fn, "trace") else jax.jit(fn, **options)
    if hasattr(fn, "trace") and options:
        raise ValueError(
            f"inspect: {', '.join(options)} given for {_title(fn)}, which is jitted already; "
            "give them to its jax.jit"
        )
    platform = jax.default_backend() if mesh is None else mesh.devices.flat[0].platform
    try:
        traced = jitted.trace(*args, **kwargs)
    except jax.errors.JAXTypeError as error:
        raise ValueError(
            f"inspect: {_title(fn)} cannot be traced with these arguments: "
            f"{str(error).splitlines()[0]} Name arguments that decide what is computed in "
            "static_argnums"
        ) from error
    here = platform == jax.default_backend()
    return traced.lower() if here else traced.lower(lowering_platforms=(platform,))


def _find_mesh(tree: Any) -> Mesh | None:
    """The mesh of `jax.set_mesh`, else the first among the shardings of a tree."""
    try:
        mesh = jax.sharding.get_mesh()
        if not mesh.empty:
            return mesh
    except ValueError:
        pass
    is_sharding = lambda one: isinstance(one, jax.sharding.Sharding)  # noqa: E731
    for leaf in jax.tree.leaves(tree, is_leaf=is_sharding):
        sharding = leaf if is_sharding(leaf) else getattr(leaf, "sharding", None)
        mesh = sharding.mesh if isinstance(sharding, NamedSharding) else None
        if isinstance(mesh, Mesh) and not mesh.empty:
            return mesh
    return None


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None and value != ()}


def _title(fn: Callable) -> str:
    name = getattr(fn, "__name__", "")
    return name if name and name != "<lambda>" else type(fn).__name__ if not name else "lambda"


def _compile(
    lowered: jax.stages.Lowered, options: Mapping[str, Any]
) -> tuple[jax.stages.Compiled, Dump | None, float]:
    """The compiled function, what its compiler wrote on the way, and how long it took."""
    # XLA writes more files than are read here; all of them go with the directory.
    with tempfile.TemporaryDirectory(prefix="gshard-inspect-") as folder:
        writing = {"xla_dump_to": folder, "xla_dump_hlo_pass_re": f"^{_PASS}$"}
        began = time.perf_counter()
        try:
            compiled = lowered.compile(compiler_options={**writing, **options})
        except jax.errors.JaxRuntimeError as error:
            if not str(error).startswith("RESOURCE_EXHAUSTED"):
                raise
            raise TooLargeError(str(error), pieces=read_pieces(Path(folder))) from error
        seconds = time.perf_counter() - began
        return compiled, _read_dump(Path(folder)), seconds


def _read_dump(folder: Path) -> Dump | None:
    """The program before and after the pass; None when there was no such pass."""
    before = sorted(folder.glob(f"*before_{_PASS}*.txt"))
    after = sorted(folder.glob(f"*after_{_PASS}*.txt"))
    if not before or not after:
        return None
    # A TPU's compiler writes the final program; asking for its text takes seconds for large ones.
    final = list(folder.glob("*.after_codegen.txt"))
    text = final[0].read_text() if len(final) == 1 else ""
    return Dump(parse(before[-1].read_text()), parse(after[-1].read_text()), text)


@contextmanager
def _without_cache() -> Iterator[dict[str, str]]:
    """Compiler options with which nothing comes from JAX's compilation cache, or goes there.

    A program from the cache has no steps to look at. JAX's own switch does nothing once the cache
    was used, and if it was not, switches it off for good.
    """
    if not jax.config.values["jax_compilation_cache_dir"]:
        yield {}
        return
    seconds = "jax_persistent_cache_min_compile_time_secs"
    before = jax.config.values[seconds]
    jax.config.update(seconds, float("inf"))
    try:
        # A dump option that is part of the cache's key, unlike the others, and matches nothing.
        yield {"xla_dump_emitter_re": f"^{uuid.uuid4().hex}$"}
    finally:
        jax.config.update(seconds, before)
