"""tools/constraints.txt pins everything that the tools install, and nothing twice."""

import importlib.metadata
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = {"gshard-annotate", "gshard-moe", "gshard-train", "gshard-m4"}
LINES = (ROOT / "tools" / "constraints.txt").read_text("utf-8").splitlines()
PINS = dict(line.split("==") for line in LINES)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(name: str, extras: frozenset[str], seen: dict[str, frozenset[str]]) -> None:
    """Adds what `name` with `extras` needs in this environment, and so on down, to `seen`."""
    if extras <= seen.get(name, frozenset()) and name in seen:
        return
    seen[name] = seen.get(name, frozenset()) | extras
    for text in importlib.metadata.requires(name) or []:
        requirement, _, condition = text.partition(";")
        extra = re.search(r"""extra\s*==\s*["']([^"']+)["']""", condition)
        if extra and extra[1] not in seen[name]:
            continue
        found = re.match(r"\s*([\w.-]+)\s*(?:\[([^]]*)\])?", requirement)
        assert found, text
        try:
            importlib.metadata.version(found[1])
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform or Python
        inner = frozenset(part.strip() for part in (found[2] or "").split(",") if part.strip())
        needed(canonical(found[1]), inner, seen)


def test_lines_are_exact_pins_sorted_and_unique() -> None:
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.!+]+", line) for line in LINES)
    assert [line.split("==")[0] for line in LINES] == sorted(PINS)


def test_everything_that_the_packages_and_tools_need_is_pinned() -> None:
    seen: dict[str, frozenset[str]] = {}
    for name in PACKAGES:
        needed(name, frozenset({"seqio"} if name == "gshard-m4" else ()), seen)
    missing = sorted(set(seen) - PACKAGES - set(PINS))
    assert not missing, f"run tools/with_python pin_constraints.py; not pinned: {missing}"
    requirements = (ROOT / "tools" / "requirements-dev.txt").read_text("utf-8").splitlines()
    tools = {re.split(r"[\[ ]", line)[0] for line in requirements if not line.startswith("#")}
    assert tools <= set(PINS)


def test_the_installed_versions_are_the_pinned_ones() -> None:
    seen: dict[str, frozenset[str]] = {}
    for name in PACKAGES:
        needed(name, frozenset(), seen)
    wrong = {
        name: (version, PINS.get(name))
        for name in seen
        if name not in PACKAGES and (version := importlib.metadata.version(name)) != PINS.get(name)
    }
    assert not wrong, "installed and pinned versions differ"
