"""The files that hold what other implementations computed are those that ORIGIN.md names."""

import hashlib
import pathlib
import re

FOLDER = pathlib.Path(__file__).parent / "goldens"


def test_files_are_the_named_ones_and_small():
    origin = (FOLDER / "ORIGIN.md").read_text(encoding="utf-8")
    named = dict(re.findall(r"^- `(.*)` sha256 (.*)$", origin, re.M))
    found = {path.name: path.read_bytes() for path in FOLDER.glob("*.npz")}
    assert {name: hashlib.sha256(data).hexdigest() for name, data in found.items()} == named
    assert sum(map(len, found.values())) < 200_000
