"""Files inside a .deb, streamed, without unpacking it to disk."""

import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

File = tuple[str, bytes]
"""A file's name inside the archive and its content."""

COPYRIGHT = re.compile(r"/usr/share/doc/[^/]+/copyright$")


class BrokenPackageError(Exception):
    """A package whose archive cannot be read."""


def files(deb: Path, wanted: str) -> Iterator[File]:
    """The files of a package whose names match, and its copyright file.

    Raises:
        BrokenPackageError: what came before may be half a package.
    """
    name_of = re.compile(wanted)
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", str(deb)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                for member in archive:
                    name = member.name.removeprefix(".")
                    if member.isfile() and (name_of.search(name) or COPYRIGHT.search(name)):
                        content = archive.extractfile(member)
                        assert content is not None
                        yield name, content.read()
        except tarfile.TarError as error:
            raise BrokenPackageError(
                f"{deb.name}: {error} {_said(process.stderr.read())}"
            ) from None
        said = _said(process.stderr.read())
    if process.returncode:
        raise BrokenPackageError(f"{deb.name}: dpkg-deb ended with {process.returncode}: {said}")


def _said(stderr: bytes) -> str:
    return stderr.decode(errors="backslashreplace").strip().split("\n")[-1]
