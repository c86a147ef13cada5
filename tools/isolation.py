"""A package by itself: installed from its wheel into a new environment and used there."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence

import distributions
import environment

TEST_TOOLS = ("beartype", "hypothesis", "jaxtyping", "pytest", "selenium")
_IMPORT_ALL = """
import importlib, json, pkgutil, sys
failed, names = {}, [sys.argv[1]]
package = importlib.import_module(sys.argv[1])
names += [module.name for module in pkgutil.walk_packages(package.__path__, sys.argv[1] + ".")]
for name in names:
    if not name.endswith(".__main__"):
        try:
            importlib.import_module(name)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"
print(json.dumps({"count": len(names), "failed": failed}))
"""


@dataclasses.dataclass(frozen=True)
class Isolated:
    """An environment that holds one wheel and what it depends on, in a folder of its own."""

    package: distributions.Package
    place: pathlib.Path
    uv: str
    constraints: pathlib.Path = environment.CONSTRAINTS

    @property
    def python(self) -> pathlib.Path:
        """The interpreter of the environment."""
        return self.place / "env" / "bin" / "python"

    def create(self, extra: str = "") -> None:
        """Makes the environment and installs the wheel, its siblings from `dist/`.

        Args:
          extra: an optional extra to install with it.
        """
        self.place.mkdir(parents=True)
        self._must([self.uv, "venv", "--quiet", "--python", sys.executable, self.place / "env"])
        wheel = self.package.wheel
        what = f"{self.package.name}[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
        self._must(self._install(what))

    def remove(self) -> None:
        """Gives the disk space back."""
        shutil.rmtree(self.place)

    def add_test_tools(self) -> None:
        """Installs what tests import beside the package."""
        self._must(self._install(*TEST_TOOLS))

    def distributions(self) -> set[str]:
        """Names of everything that is installed."""
        command = [self.uv, "pip", "list", "--format", "json", "--python", str(self.python)]
        return {entry["name"] for entry in json.loads(self._must(command).stdout)}

    def check_faults(self) -> list[str]:
        """What `uv pip check` finds, and console scripts that do not start."""
        done = self._run([self.uv, "pip", "check", "--python", str(self.python)])
        faults = [f"pip check: {done.stderr.strip()}"] if done.returncode else []
        for script in self.package.scripts:
            done = self._run([self.python.parent / script, "--help"])
            if done.returncode:
                faults.append(f"{script} --help fails: {_last_line(done)}")
        return faults

    def imports(self) -> tuple[int, dict[str, str]]:
        """How many modules the package has, and the error of each that cannot be imported."""
        done = self._must([str(self.python), "-c", _IMPORT_ALL, self.package.module])
        result = json.loads(done.stdout.splitlines()[-1])
        return result["count"], result["failed"]

    def test(self) -> tuple[str, list[str]]:
        """Runs the package's own tests in a folder that holds nothing else: counts, and faults."""
        folder = self.place / "empty"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(
            self.package.folder / "tests",
            folder / "tests",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        # its examples are tested too
        shutil.copy(self.package.folder / "README.md", folder)
        # pytest's settings; the file has nothing but tool settings
        shutil.copy(environment.ROOT / "pyproject.toml", folder)
        options = ["-q", "-m", "not slow", "-p", "no:cacheprovider", "tests"]
        done = self._run([str(self.python), "-m", "pytest", *options], folder)
        counts = re.sub(r"^=+ | =+$| in [\d.]+s.*", "", _last_line(done))
        if done.returncode == 0:
            return counts, []
        failures = [
            line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))
        ]
        return counts, failures or [f"tests: {_last_line(done)}"]

    def _install(self, *what: str) -> list[str]:
        command = [self.uv, "pip", "install", "--quiet", "--python", str(self.python)]
        command += ["--constraint", str(self.constraints)]
        command += ["--find-links", str(distributions.DIST)]
        for name in environment.PACKAGES:
            command += ["--refresh-package", name]
        return [*command, *what]

    def _must(self, command: Sequence[object]) -> subprocess.CompletedProcess[str]:
        done = self._run(command)
        if done.returncode:
            said = done.stderr.strip() or done.stdout.strip()
            raise environment.Refusal(f"{self.package.name}: {' '.join(map(str, command))}: {said}")
        return done

    def _run(
        self, command: Sequence[object], folder: pathlib.Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        hidden = ("PYTHONPATH", "VIRTUAL_ENV")
        variables = {name: value for name, value in os.environ.items() if name not in hidden}
        return subprocess.run(
            [str(word) for word in command],
            capture_output=True,
            text=True,
            cwd=folder or self.place,
            env=variables | {"JAX_PLATFORMS": "cpu"},
            check=False,
        )


def refusal_of(
    package: distributions.Package, sibling: distributions.Package, place: pathlib.Path, uv: str
) -> str:
    """What the resolver says when only `sibling` is there for `package`; empty if it accepts it."""
    command = [uv, "--quiet", "pip", "install", "--dry-run", "--python", sys.executable]
    command += ["--target", str(place / "target"), "--constraint", str(environment.CONSTRAINTS)]
    command += [str(package.wheel), str(sibling.wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return lines[-1] if lines else f"exit status {done.returncode}, no output"
