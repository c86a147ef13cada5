"""Wheels and sdists of the four packages: building them, and what must be inside."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import subprocess
import tomllib
import zipfile

import environment

DIST = environment.ROOT / "dist"
LARGEST_WHEEL = {"gshard-m4": 3 * 10**6}
# what each wheel is useless or unlawful without, as endings of names inside it
REQUIRED = {
    "gshard-annotate": ("/py.typed", "/licenses/LICENSE"),
    "gshard-moe": ("/py.typed", "/licenses/LICENSE"),
    "gshard-train": ("/py.typed", "/licenses/LICENSE"),
    "gshard-m4": ("/py.typed", "/licenses/LICENSE", "/configs/quickstart.gin", ".model"),
}


@dataclasses.dataclass(frozen=True)
class Package:
    """One package of the repository with the files that were built from it."""

    name: str
    version: str
    wheel: pathlib.Path
    sdist: pathlib.Path
    scripts: tuple[str, ...]

    @property
    def module(self) -> str:
        """The name it is imported by."""
        return self.name.replace("-", "_")

    @property
    def folder(self) -> pathlib.Path:
        """Where its sources lie."""
        return environment.ROOT / "packages" / self.name


def build(name: str, uv: str) -> Package:
    """Builds the sdist and, out of the sdist, the wheel into `dist/`."""
    folder = environment.ROOT / "packages" / name
    return _build(folder, DIST, uv)


def build_doctored(name: str, version: str, place: pathlib.Path, uv: str) -> Package:
    """The package as it would be with another version number, built below `place`."""
    folder = place / name
    shutil.copytree(environment.ROOT / "packages" / name, folder)
    project = folder / "pyproject.toml"
    text = project.read_text()
    given = tomllib.loads(text)["project"]["version"]
    project.write_text(text.replace(f'version = "{given}"', f'version = "{version}"', 1))
    return _build(folder, place / "dist", uv)


def content_faults(package: Package) -> list[str]:
    """What is missing from the wheel, or too much."""
    with zipfile.ZipFile(package.wheel) as archive:
        inside = archive.namelist()
    source = package.folder / "src"
    files = [
        path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    faults = [
        f"{package.wheel.name} lacks {path.relative_to(source)}"
        for path in files
        if path.relative_to(source).as_posix() not in inside
    ]
    faults += [
        f"{package.wheel.name} holds no file that ends in {ending}"
        for ending in REQUIRED[package.name]
        if not any(name.endswith(ending) for name in inside)
    ]
    size, largest = package.wheel.stat().st_size, LARGEST_WHEEL.get(package.name)
    if largest is not None and size > largest:
        faults.append(
            f"{package.wheel.name} has {size / 1e6:.2f} MB; {largest / 1e6:g} are allowed"
        )
    return faults


def _build(folder: pathlib.Path, out: pathlib.Path, uv: str) -> Package:
    command = [uv, "build", "--quiet", "--out-dir", str(out)]
    command += ["--build-constraints", str(environment.CONSTRAINTS), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise environment.Refusal(f"{folder.name} cannot be built: {done.stderr.strip()}")
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    stem = f"{name.replace('-', '_')}-{version}"
    wheel, sdist = out / f"{stem}-py3-none-any.whl", out / f"{stem}.tar.gz"
    return Package(name, version, wheel, sdist, tuple(project.get("scripts", ())))
