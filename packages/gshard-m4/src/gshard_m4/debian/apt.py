"""Packages and their indexes from a Debian archive, with a private state folder.

The system's own package lists, cache and installed packages are left alone; its sources and keys
are used. Nothing is installed.
"""

import dataclasses
import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from gshard_m4.input_error import InputError

NEEDED = ("apt-get", "apt-cache", "dpkg-deb")
_AT_ONCE = 10


@dataclasses.dataclass(frozen=True)
class Package:
    """A package as the archive's index describes it; `file` is its name once downloaded."""

    name: str
    version: str
    architecture: str
    bytes: int
    sha256: str

    @property
    def file(self) -> str:
        """The name that apt-get gives to the download."""
        return f"{self.name}_{self.version.replace(':', '%3a')}_{self.architecture}.deb"


def require_apt() -> None:
    """Raises an InputError on systems without apt."""
    if not all(map(shutil.which, NEEDED)):
        raise InputError(
            [
                f"--source=debian needs {', '.join(NEEDED)}, which Debian and systems made from it"
                " have; run it there (a Debian container will do), copy the result, and use"
                " --source=tsv here"
            ]
        )


class Apt:
    """apt's commands over a state folder of our own; a command that fails is an InputError."""

    def __init__(self, state: Path):
        self.lists = state / "lists"
        for folder in ("lists/partial", "cache/archives/partial"):
            (state / folder).mkdir(parents=True, exist_ok=True)
        status = state / "status"
        status.touch()
        # GzipIndexes: the readers take the indexes as plain text. The sandbox user could not write
        # to folders of the user who asked.
        self._options = [
            f"-oDir::State={state}",
            f"-oDir::State::status={status}",
            f"-oDir::Cache={state / 'cache'}",
            "-oAcquire::GzipIndexes=false",
            "-oAPT::Sandbox::User=root",
        ]

    def update(self, description_languages: Sequence[str]) -> None:
        """Downloads the indexes, with descriptions in the languages."""
        # In a configuration file the list would be joined to the system's, which may say "none".
        languages = f"-oAcquire::Languages={','.join(description_languages)}"
        # By default an archive that cannot be reached is a warning.
        strict = "-oAPT::Update::Error-Mode=any"
        self._run(["apt-get", "-qq", "update", languages, strict])

    def names(self) -> list[str]:
        """The names of all packages of the archive."""
        return self._run(["apt-cache", "pkgnames"]).split()

    def describe(self, names: Iterable[str]) -> dict[str, Package]:
        """Version, size and hash of the packages that the archive has."""
        wanted = dict.fromkeys(names)
        if not wanted:
            return {}
        text = self._run(["apt-cache", "show", "--no-all-versions", *wanted], may_fail=True)
        found = (_package(stanza) for stanza in text.split("\n\n") if stanza.strip())
        return {one.name: one for one in found if one is not None and one.name in wanted}

    def download(
        self, packages: Collection[Package], folder: Path, done: Callable[[Package], None]
    ) -> list[Package]:
        """Downloads packages that are not there with their hash; returns those that failed.

        Where none of several can be had, the rest is not tried.
        """
        folder.mkdir(parents=True, exist_ok=True)
        absent = []
        for package in packages:
            if is_whole(package, folder):
                done(package)
            else:
                (folder / package.file).unlink(missing_ok=True)
                absent.append(package)
        failed = []
        for at in range(0, len(absent), _AT_ONCE):
            batch = absent[at : at + _AT_ONCE]
            self._download(batch, folder)
            lost = [package for package in batch if not is_whole(package, folder)]
            for package in lost:
                self._download([package], folder)
            lost = [package for package in lost if not is_whole(package, folder)]
            failed.extend(lost)
            for package in batch:
                if package not in lost:
                    done(package)
            if len(lost) == len(batch):
                return [*failed, *absent[at + _AT_ONCE :]]
        return failed

    def _download(self, packages: Sequence[Package], folder: Path) -> None:
        names = [f"{package.name}={package.version}" for package in packages]
        self._run(["apt-get", "-qq", "download", *names], may_fail=True, folder=folder)

    def _run(
        self, command: Sequence[str], *, may_fail: bool = False, folder: Path | None = None
    ) -> str:
        whole = [command[0], *self._options, *command[1:]]
        result = subprocess.run(whole, capture_output=True, text=True, cwd=folder, check=False)
        if result.returncode and not may_fail:
            said = [line for line in result.stderr.split("\n") if line.startswith("E:")]
            raise InputError(
                [f"{' '.join(command[:3])} failed: {line}" for line in said]
                or [f"{' '.join(command[:3])} failed with exit code {result.returncode}"]
            )
        return result.stdout


def is_whole(package: Package, folder: Path) -> bool:
    """Whether the package's file is there with its size and hash."""
    path = folder / package.file
    if not path.is_file() or path.stat().st_size != package.bytes:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == package.sha256


def _package(stanza: str) -> Package | None:
    fields = dict(re.findall(r"^([\w-]+): (.*)$", stanza, re.MULTILINE))
    try:
        return Package(
            name=fields["Package"],
            version=fields["Version"],
            architecture=fields["Architecture"],
            bytes=int(fields["Size"]),
            sha256=fields["SHA256"],
        )
    except KeyError:
        return None
