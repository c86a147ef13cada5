"""The virtual environment `.venv` of a checkout: made once, used while its recipe stays the same.

The packages are installed editable against `tools/constraints.txt`, with uv where it runs and with
pip otherwise. The recipe's hash is kept in `.venv/gshard.json`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
CONSTRAINTS = ROOT / "tools" / "constraints.txt"
# Apache Beam wants an older protobuf and pyarrow than all else
BEAM_CONSTRAINTS = ROOT / "tools" / "constraints-beam.txt"
REQUIREMENTS = ROOT / "tools" / "requirements-dev.txt"
PACKAGES = ("gshard-annotate", "gshard-moe", "gshard-train", "gshard-m4")
OLDEST, TOO_NEW = (3, 11), (3, 14)
NEEDED_BYTES = 4 * 10**9

_MARKER = VENV / "gshard.json"
_LOG = VENV / "install.log"
_PROGRESS = re.compile(r" *(Resolved|Downloading .*[MG]i?B|Prepared|Installed|Successfully)")
_DISK_FULL = ("No space left on device", "Errno 28", "os error 28")
_NO_NETWORK = (
    "dns error",
    "error sending request",
    "Failed to fetch",
    "NewConnectionError",
    "Name or service not known",
    "Temporary failure in name resolution",
    "Network is unreachable",
    "tunneling socket",
    "operation timed out",
    "Read timed out",
)


class Refusal(Exception):  # noqa: N818 - it is what the reader is told, not a fault in a program
    """What stands in the way and what to do about it, in one line."""


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> None:
    """Raises Refusal unless every pinned dependency has a build for this Python."""
    if not OLDEST <= version[:2] < TOO_NEW:
        raise Refusal(
            f"needs Python 3.11, 3.12 or 3.13, this is {'.'.join(map(str, version))}"
            f" ({sys.executable}); put one of them first on PATH"
        )


def ensure(*, development: bool = False) -> pathlib.Path:
    """The Python of `.venv`, with the four packages and, if asked for, the tools that test them.

    Args:
      development: also install `tools/requirements-dev.txt`.
    """
    check_python()
    recipe = _recipe(development)
    if _usable() and _marker().get(_kind(development)) == recipe:
        return PYTHON
    if not _usable():
        _make()
    _LOG.unlink(missing_ok=True)
    print(f"installing into {VENV} (the first time about 1 GB is downloaded)", flush=True)
    install(PYTHON, ["--constraint", str(CONSTRAINTS), *_requirements(development)])
    kinds = ("packages", "development") if development else ("packages",)
    hashes = {kind: _recipe(kind == "development") for kind in kinds}
    _MARKER.write_text(json.dumps(_marker() | hashes, indent=1) + "\n")
    return PYTHON


def install(python: pathlib.Path, arguments: Sequence[str], *, log: pathlib.Path = _LOG) -> None:
    """Installs with the fastest installer that works; raises Refusal with the reason otherwise.

    Args:
      python: the interpreter whose environment is changed.
      arguments: what follows `install` on pip's command line.
      log: gets everything that the installers print.
    """
    reasons = []
    for installer in installers(python):
        output, status = _logged([*installer, *arguments], log)
        if status == 0:
            return
        reasons.append(explain(output, log))
        # pip may know a mirror that uv does not; no other failure is worth a second try
        if not _says(output, _NO_NETWORK):
            break
    missing = "there is neither uv nor pip for this Python; install python3-pip or uv"
    raise Refusal(reasons[0] if reasons else missing)


def installers(python: pathlib.Path) -> Iterator[list[str]]:
    """Commands that install into `python`'s environment, the fastest first."""
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    has_pip = _answers([sys.executable, "-m", "pip", "--version"])
    uv = find_uv(python)
    if uv is None and has_pip:
        _logged([*pip, "install", "--quiet", "--constraint", str(CONSTRAINTS), "uv"], _LOG)
        uv = find_uv(python)
    if uv is not None:
        yield [uv, "pip", "install", "--python", str(python)]
    if has_pip:
        yield [*pip, "install", "--progress-bar", "off"]


def find_uv(python: pathlib.Path = PYTHON) -> str | None:
    """A uv that runs: on PATH (where a version manager's stub may not), or beside `python`."""
    for candidate in (shutil.which("uv"), str(python.parent / "uv")):
        if candidate and _answers([candidate, "--version"]):
            return candidate
    return None


def explain(output: str, log: pathlib.Path = _LOG) -> str:
    """One line for a failed installation."""
    if _says(output, _DISK_FULL):
        return f"the disk is full; {_free_space()}: make room and run this again"
    if _says(output, _NO_NETWORK):
        return (
            "cannot reach the Python package index; check the network (behind a proxy HTTPS_PROXY,"
            f" with a mirror UV_DEFAULT_INDEX or PIP_INDEX_URL) and run this again; details: {log}"
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error", "× ", "cause:"))]
    said = (errors or lines or ["no output"])[0]
    return f"installation failed: {said} (everything it said: {log})"


def _make() -> None:
    """Makes an empty `.venv`; refuses to touch one that it did not make."""
    if VENV.exists() and "made" not in _marker():
        raise Refusal(
            f"{VENV} holds no Python 3.11 to 3.13 that runs and was not made by this script;"
            f" remove it (rm -r {VENV}) and run this again"
        )
    shutil.rmtree(VENV, ignore_errors=True)
    if shutil.disk_usage(ROOT).free < NEEDED_BYTES:
        raise Refusal(f"the environment takes 3 to 4 GB; {_free_space()}: make room")
    made = subprocess.run(
        # without pip, since Debian ships the part that would bring it in a package of its own
        [sys.executable, "-m", "venv", "--without-pip", str(VENV)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise Refusal(
            f"cannot make {VENV}: {(made.stderr or made.stdout).strip().splitlines()[-1]}"
        )
    _MARKER.write_text('{"made": "by tools/environment.py"}\n')


def _requirements(development: bool) -> list[str]:
    words = []
    for name in PACKAGES:
        extra = "[parquet,seqio]" if name == "gshard-m4" else ""
        words += ["--editable", f"{ROOT / 'packages' / name}{extra}"]
    return words + (["--requirement", str(REQUIREMENTS)] if development else [])


def _recipe(development: bool) -> str:
    """Hash of all that decides what is installed, the folder included: a moved `.venv` is stale."""
    files = [CONSTRAINTS, *(ROOT / "packages" / name / "pyproject.toml" for name in PACKAGES)]
    text = [str(ROOT), *(path.read_text() for path in files)]
    if development:
        text.append(REQUIREMENTS.read_text())
    return hashlib.sha256("\0".join(text).encode()).hexdigest()


def _kind(development: bool) -> str:
    return "development" if development else "packages"


def _usable() -> bool:
    check = f"import sys; sys.exit(not {OLDEST} <= sys.version_info < {TOO_NEW})"
    return PYTHON.exists() and _answers([str(PYTHON), "-c", check])


def _marker() -> dict[str, str]:
    try:
        return json.loads(_MARKER.read_text())
    except (OSError, ValueError):
        return {}


def _says(output: str, signs: Sequence[str]) -> bool:
    return any(sign in output for sign in signs)


def _free_space() -> str:
    return f"{shutil.disk_usage(ROOT).free / 1e9:.1f} GB are free where {ROOT} lies"


def _answers(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _logged(command: Sequence[str], log: pathlib.Path) -> tuple[str, int]:
    """Output and exit status of an installer; its lines of progress are shown as they come."""
    variables = {**os.environ, "UV_NO_PROGRESS": "1", "PYTHONUNBUFFERED": "1"}
    lines = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=variables
    ) as child:
        for line in child.stdout or ():
            lines.append(line)
            if _PROGRESS.match(line):
                print("  " + line.strip()[:96], flush=True)
    with contextlib.suppress(OSError), log.open("a") as copy:  # on a full disk there is no log
        copy.writelines(lines)
    return "".join(lines), child.returncode
