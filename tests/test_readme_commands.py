"""Every command and every snippet in the READMEs works as it is written.

Python blocks run whole, here or in their package's own test_readme.py. Of bash blocks, cheap
commands run; for the rest each program, subcommand, flag, gin macro and path that they name must
exist. A command of a kind unknown here fails the test.
"""

import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tomllib
from typing import cast

import pytest

from gshard_m4.prepared import write_prepared
from gshard_m4.sample.corpus import corpus as sample
from gshard_train import command_line, config
from gshard_train.precompiling.configuration import loaded_config
from gshard_train.precompiling.job import Job, Mode

ROOT = pathlib.Path(__file__).resolve().parent.parent
READMES = [ROOT / "README.md", *sorted(ROOT.glob("packages/*/README.md"))]
_FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
# They take a model file alone.
_COMPILE_ONLY = ("gshard_train.precompile", "gshard_train.plan")
_ACTS_OUTSIDE = {"cd", "git", "open", "twine", "xdg-open"}


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block of a README."""

    path: pathlib.Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        folder = self.path.parent.name if self.path.parent != ROOT else "root"
        return f"{folder}-{self.line}"


def blocks(language: str) -> list[Block]:
    """The blocks of one language in all READMEs."""
    found = []
    for path in READMES:
        text = path.read_text("utf-8")
        for match in _FENCE.finditer(text):
            line = text[: match.start()].count("\n") + 1
            if match[2] == language:
                body = re.sub(f"^{match[1]}", "", match[3], flags=re.MULTILINE)
                found.append(Block(path, line, language, body))
    return found


def words(block: Block) -> list[list[str]]:
    """The commands of a bash block, continued lines joined, without variables set before them."""
    lines = block.text.replace("\\\n", " ").splitlines()
    split = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    bare = []
    for parts in split:
        while parts and re.fullmatch(r"[A-Z_]+=.*", parts[0]):
            parts = parts[1:]
        bare += [parts] if parts else []
    return bare


def run(*command: str) -> str:
    """Everything that a command prints; it must succeed."""
    variables = {**os.environ, "JAX_PLATFORMS": "cpu", "COLUMNS": "200"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=variables, check=False
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def check(command: list[str], folder: pathlib.Path) -> None:
    """Checks one command, or runs it where that is cheap."""
    program, *arguments = command
    if program in ("python", "python3", ".venv/bin/python") and arguments[:1] == ["-m"]:
        check_module(arguments[1], arguments[2:])
    elif program in ("pip", "uv"):
        check_install(arguments, folder)
    elif program.removeprefix(".venv/bin/") in _console_scripts():
        check_script(program.removeprefix(".venv/bin/"), arguments)
    elif program in ("tools/quickstart", "tools/test"):
        check_flags(run(str(ROOT / program), "--help"), arguments)
    elif program == "tools/with_python":
        check_flags(
            run(sys.executable, str(ROOT / "tools" / arguments[0]), "--help"), arguments[1:]
        )
    else:
        assert program in _ACTS_OUTSIDE, f"say in {__file__} how to check {shlex.join(command)}"


def check_module(module: str, arguments: list[str]) -> None:
    """`python -m MODULE ...`: the module has the flags and its gin files the macros."""
    if "--help" in arguments:
        run(sys.executable, "-m", module, *arguments)
        return
    if module.startswith("gshard_train.") and module != "gshard_train.checkpointing.show":
        check_gin(module, arguments)
    else:
        check_flags(run(sys.executable, "-m", module, "--help"), arguments)


def check_gin(module: str, arguments: list[str]) -> None:
    """A binary of the trainer: flags are in its help, all bindings are found in the gin files."""
    spelt = command_line.gin_arguments(arguments)
    check_flags(run(sys.executable, "-m", module, "--help"), spelt)
    given = [word.partition("=")[::2] for word in spelt]
    files = [value for flag, value in given if flag == "--gin_file"]
    bindings = [value for flag, value in given if flag == "--gin_bindings"]
    if files == ["/tmp/model/config.gin"]:  # what a run has left
        return
    if module in _COMPILE_ONLY:
        mode = next((value for flag, value in given if flag == "--mode"), "train")
        job = Job(gin_files=tuple(files), gin_bindings=tuple(bindings), topology="")
        loaded_config(dataclasses.replace(job, mode=cast(Mode, mode)))
        return
    config.load(files, bindings)


def check_script(script: str, arguments: list[str]) -> None:
    """A console script: gin's for the trainer, subcommands for m4."""
    if script.startswith("gshard-m4"):
        subcommand = [word for word in arguments[:1] if not word.startswith("-")]
        help_text = run(sys.executable, "-m", "gshard_m4", *subcommand, "--help")
        check_flags(help_text, arguments[len(subcommand) :])
    else:
        check_module(f"gshard_train.{script.removeprefix('gshard-')}", arguments)


def check_install(arguments: list[str], folder: pathlib.Path) -> None:
    """`pip install`: paths exist with their extras; names are ours or pinned."""
    pins = (ROOT / "tools" / "constraints.txt").read_text("utf-8")
    for word in arguments:
        name, _, extra = word.rstrip("]").partition("[")
        if name.startswith("-") or name in ("pip", "install", "build", "publish"):
            continue
        if name.startswith("dist/"):
            continue  # what check_packages leaves
        path = next((base / name for base in (ROOT, folder) if (base / name).is_dir()), None)
        path = path or ROOT / "packages" / name
        if not path.is_dir():
            assert f"{name}==" in pins, f"{word} is neither here nor pinned"
        elif extra:
            project = tomllib.loads((path / "pyproject.toml").read_text("utf-8"))["project"]
            assert extra in project["optional-dependencies"], word


def check_flags(help_text: str, arguments: list[str]) -> None:
    """Every `--flag` is in the help text."""
    for word in arguments:
        flag = re.match(r"--?[a-zA-Z][\w-]*", word)
        if flag:
            known = re.search(rf"(?<![\w-]){re.escape(flag[0])}\b", help_text)
            assert known, f"{flag[0]} is not among the flags"


def _console_scripts() -> set[str]:
    projects = ROOT.glob("packages/*/pyproject.toml")
    loaded = [tomllib.loads(path.read_text("utf-8"))["project"] for path in projects]
    return {script for project in loaded for script in project.get("scripts", ())}


@pytest.mark.parametrize("block", blocks("bash"), ids=str)
def test_bash_block(block: Block) -> None:
    commands = words(block)
    assert commands
    for command in commands:
        check(command, block.path.parent)


def write_translations(folder: pathlib.Path) -> None:
    """The smallest folder that decoding could have written, for snippets that read one."""
    split = folder / "test"
    split.mkdir(parents=True)
    said = {"source": "calon werdd", "reference": "green heart", "prediction": "green heart"}
    line = {"id": 0, **said, "score": -0.1, "truncated": False}
    (split / "m4_sample_cy_en.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
    counts = {"tasks": {"m4_sample_cy_en": 1}, "split": "test"}
    manifest = counts | {"decoder": {"beams": 4}, "checkpoint_step": 1}
    (split / "manifest.json").write_text(json.dumps(manifest), "utf-8")


def write_prepared_text(folder: pathlib.Path) -> None:
    """Three languages of the sample, for snippets that read what `gshard-m4 prepare` wrote."""
    pairs = {code: sample().pairs[code] for code in ("de", "ps", "zh")}
    wanted = ("train", "validation", "test")
    texts = {code: {split: splits[split] for split in wanted} for code, splits in pairs.items()}
    write_prepared(folder, texts, name="m4")


def not_run_elsewhere() -> list[Block]:
    """The Python blocks of READMEs whose package has no test_readme.py of its own."""
    return [
        block
        for block in blocks("python")
        if not (block.path.parent / "tests" / "test_readme.py").exists()
    ]


@pytest.mark.parametrize("block", not_run_elsewhere(), ids=str)
def test_python_block(block: Block, tmp_path: pathlib.Path) -> None:
    write_translations(tmp_path / "translations")
    if 'open_prepared("m4")' in block.text:
        write_prepared_text(tmp_path / "m4")
    script = tmp_path / "snippet.py"
    script.write_text(block.text, "utf-8")
    # Compiling takes most of the time; code for small arrays need not be fast.
    variables = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    variables.pop("XLA_FLAGS", None)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=variables,
        check=False,
    )
    assert done.returncode == 0, f"{block.path} line {block.line}:\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("path", READMES, ids=lambda path: path.parent.name)
def test_readme_links_lead_somewhere(path: pathlib.Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text("utf-8"))
    lost = [
        target for target in targets if "://" not in target and not (path.parent / target).exists()
    ]
    assert not lost


@pytest.mark.parametrize("path", READMES, ids=lambda path: path.parent.name)
def test_every_fence_says_its_language_or_is_plain_text(path: pathlib.Path) -> None:
    fences = re.findall(r"^ *```(\S*)$", path.read_text("utf-8"), re.MULTILINE)
    opening = fences[::2]
    assert set(opening) <= {"", "bash", "gin", "json", "python", "text"}
    assert not any(fences[1::2])
