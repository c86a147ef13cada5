"""Download, extract, merge: from an empty folder to a file of pairs for each language."""

import contextlib
import hashlib
import multiprocessing
import os
import sys
import threading
from collections.abc import Collection as Codes
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING

from gshard_m4 import languages as m4
from gshard_m4.debian.apt import Apt, Package, require_apt
from gshard_m4.debian.archive import BrokenPackageError
from gshard_m4.debian.choosing import Choice, choose
from gshard_m4.debian.extraction import Job, extract
from gshard_m4.debian.merging import merge
from gshard_m4.debian.packages import DESCRIPTION_LANGUAGES, DESCRIPTIONS
from gshard_m4.input_error import InputError

if TYPE_CHECKING:
    from tqdm import tqdm


def fetch(
    work: Path,
    *,
    languages: Codes[str] | None = None,
    any_language: bool = False,
    packages: Sequence[str] | None = None,
    processes: int = 1,
    progress: bool = True,
) -> Path:
    """A folder of `<code>.tsv` (source, English, origin) from packages of the Debian archive.

    What was downloaded and extracted before is taken as it is, so that an interrupted run goes on;
    removing `work/apt` asks the archive for newer packages. Beside the files, `debian.json` names
    every package with version, hash and licences, what is missing, and what was removed and why.

    Args:
        work: folder for indexes and downloads (0.9 GB), extracted packages (0.4 GB) and the result
            (1.1 GB for M4).
        languages: codes of those to write, of M4 or any other; all of M4 by default.
        any_language: write every language and script there is, where none are named.
        packages: names of collections or packages; all by default.
        processes: packages extracted at a time.
        progress: whether to show bars on standard error.

    Raises:
        InputError: without apt, without a network on the first run, for unknown languages or
            packages, where not one of the packages is in the archive.
    """
    codes = _codes(languages, any_language=any_language)
    require_apt()
    try:
        with _locked(work):
            return _fetch(work.resolve(), codes, packages, processes=processes, progress=progress)
    except OSError as error:
        raise InputError([f"cannot work in {work}: {error}"]) from None


@contextlib.contextmanager
def _locked(work: Path) -> Iterator[None]:
    """Keeps other runs out of the folder until this process ends."""
    import fcntl  # not on Windows, where there is no apt either

    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError([f"another process is at work in {work}; wait for it"]) from None
        yield


def _fetch(
    work: Path,
    codes: Codes[str] | None,
    packages: Sequence[str] | None,
    *,
    processes: int,
    progress: bool,
) -> Path:
    apt = Apt(work / "apt")
    stamp = work / "apt" / "updated"
    if not stamp.exists():
        apt.update(DESCRIPTION_LANGUAGES)
        stamp.touch()
    choices = choose(apt.names(), packages)
    described = apt.describe(name for choice in choices for name in choice.present)
    missing = [name for choice in choices for name in choice.missing]
    missing += [name for c in choices for name in c.present if name not in described]
    if not described and not any(choice.collection is DESCRIPTIONS for choice in choices):
        raise InputError(["not one of the packages is in the archive of /etc/apt/sources.list"])
    for name in missing:
        print(f"debian: no package {name} in the archive, left out", file=sys.stderr)
    _download(apt, list(described.values()), work, progress=progress)
    jobs = [job for choice in choices for job in _jobs(choice, described, work, apt.lists)]
    broken = _extract(jobs, processes=processes, progress=progress)
    done = [job for job in jobs if job.name not in broken]
    folder = merge(done, described, work, codes=codes, missing=missing, broken=broken)
    for code in codes or ():
        if not (folder / f"{code}.tsv").exists():
            print(f"debian: no text in {code}, left out", file=sys.stderr)
    return folder


def _codes(languages: Codes[str] | None, *, any_language: bool) -> list[str] | None:
    """The languages' own codes, in order; None for every language there is."""
    if not languages and any_language:
        return None
    if not languages:
        return sorted(language.code for language in m4.LANGUAGES)
    faults, codes = [], []
    for code in languages:
        try:
            codes.append(m4.find(code, variants=True, others=True).code)
        except ValueError as error:
            faults.append(str(error))
    if faults:
        raise InputError(faults)
    return sorted(set(codes))


def _download(apt: Apt, packages: Sequence[Package], work: Path, *, progress: bool) -> None:
    """Downloads all, or nothing goes on: half of a corpus is not taken for whole."""
    with _bar(sum(p.bytes for p in packages), "download", "B", show=progress) as bar:

        def advance(package: Package) -> None:
            bar.update(package.bytes)

        failed = apt.download(packages, work / "packages", advance)
    if failed:
        names = ", ".join(package.name for package in failed[:5])
        more = ", ..." if len(failed) > 5 else ""
        raise InputError(
            [
                f"{len(failed)} of {len(packages)} packages could not be downloaded"
                f" ({names}{more}); run the same command again to go on, or, if the archive has"
                f" newer versions by now, remove {work / 'apt'} first"
            ]
        )


def _jobs(choice: Choice, packages: dict[str, Package], work: Path, lists: Path) -> Iterator[Job]:
    """A job for each package that holds translations, or one for all descriptions."""
    if choice.collection is DESCRIPTIONS:
        indexes = sorted(lists.glob("*_i18n_Translation-*"))
        english = tuple(path for path in indexes if path.name.endswith("-en"))
        others = tuple(path for path in indexes if not path.name.endswith("-en"))
        if english and others:
            yield _job("debian-descriptions", choice, others, english, work)
        return
    reference = packages.get(choice.collection.english)
    if choice.collection.english and reference is None:
        print(
            f"debian: no package {choice.collection.english}, the English of"
            f" {choice.collection.name}: left out",
            file=sys.stderr,
        )
        return
    folder = work / "packages"
    english = (folder / reference.file,) if reference else ()
    for name in choice.to_read:
        if name in packages:
            yield _job(name, choice, (folder / packages[name].file,), english, work)


def _job(
    name: str, choice: Choice, inputs: tuple[Path, ...], english: tuple[Path, ...], work: Path
) -> Job:
    """A job with a fingerprint of its inputs: names of packages, which hold their version."""
    parts = [f"{path.name} {path.stat().st_size}" for path in (*inputs, *english)]
    fingerprint = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    output = work / "extracted" / f"{name}.tsv.gz"
    return Job(name, choice.collection.name, inputs, english, output, fingerprint)


def _extract(jobs: Sequence[Job], *, processes: int, progress: bool) -> dict[str, str]:
    """Extracts what is not done yet; returns the packages that cannot be read, with the reason."""
    waiting = [job for job in jobs if not job.is_done]
    # The longest first, so that no process waits for the last one alone.
    waiting.sort(key=lambda job: -sum(path.stat().st_size for path in job.inputs))
    broken: dict[str, str] = {}
    with _bar(len(jobs), "extract", " packages", show=progress) as bar:
        bar.update(len(jobs) - len(waiting))
        for job, error in _run(waiting, processes):
            bar.update(1)
            if error:
                broken[job.name] = error
                print(f"debian: package {job.name} cannot be read: {error}", file=sys.stderr)
    return broken


def _run(jobs: Sequence[Job], processes: int) -> Iterator[tuple[Job, str]]:
    if processes <= 1:
        for job in jobs:
            yield job, _try(job)
        return
    # Spawned: the caller may have threads, which a forked process would lose in mid-step.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=_end_with_parent) as pool:
        running = {pool.submit(_try, job): job for job in jobs}
        for future in as_completed(running):
            try:
                yield running[future], future.result()
            except BrokenProcessPool:
                raise InputError(
                    [
                        "a process was killed from outside, perhaps for memory; run the same"
                        " command again with fewer processes: what is extracted stays"
                    ]
                ) from None


def _end_with_parent() -> None:
    """Ends this worker when its parent is killed: it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


def _try(job: Job) -> str:
    try:
        extract(job)
    except BrokenPackageError as error:
        return str(error)
    return ""


def _bar(total: int, what: str, unit: str, *, show: bool) -> "tqdm":
    from tqdm import tqdm

    return tqdm(
        total=total, desc=what, unit=unit, unit_scale=unit == "B", disable=not show, leave=False
    )
