"""The whole way with commands that stand in for apt's and a package that is a plain tar."""

import hashlib
import io
import json
import struct
import tarfile

import pytest

from gshard_m4.debian import fetch, sources
from gshard_m4.debian.extraction import licences
from gshard_m4.input_error import InputError

fcntl = pytest.importorskip("fcntl")
COPYRIGHT = "License: GPL-2+\n text\n\nFiles: x\nLicense: MIT\n"
GIMP = [
    ("de", {"_Open": "Ö_ffnen", "Close": "Schließen", "%s": "%s", "same": "same"}),
    ("sd", {"Close": "बन्द करो", "Open": "खोलो"}),
    ("zh_TW", {"Close": "關閉"}),
    ("en_GB", {"Color": "Colour"}),
    ("zz", {"Close": "zzz"}),
]


def catalogue(entries):
    pairs = [(b"", b"charset=UTF-8\n"), *((a.encode(), b.encode()) for a, b in entries.items())]
    at, tables, strings = 28 + 16 * len(pairs), [b"", b""], b""
    for side in (0, 1):
        for entry in pairs:
            tables[side] += struct.pack("<2I", len(entry[side]), at + len(strings))
            strings += entry[side] + b"\0"
    head = struct.pack("<7I", 0x950412DE, 0, len(pairs), 28, 28 + 8 * len(pairs), 0, 0)
    return head + tables[0] + tables[1] + strings


def package(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


GERMAN = {"usr/share/locale/de/LC_MESSAGES/y.mo": catalogue({"Help": "Hilfe"})}


def help_page(language, text):
    return package({f"usr/help/{language}/text/a.html": f'<p id="a">{text}</p>'.encode()})


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """A folder of packages that the stand-in commands serve."""
    served, commands = tmp_path / "archive", tmp_path / "commands"
    served.mkdir()
    commands.mkdir()
    scripts = {
        "apt-get": f"""
            for last; do :; done
            case "$*" in
                *" update "*)
                    for option; do case "$option" in
                        -oDir::State=*) cp {served}/*Translation-* "${{option#*=}}/lists/" ;;
                    esac; done
                    echo update >> {tmp_path}/calls ;;
                *) seen=; for name; do
                    [ -n "$seen" ] && cp "{served}/${{name%%=*}}_1%3a2_all.deb" . 2>/dev/null
                    [ "$name" = download ] && seen=1
                   done; echo download >> {tmp_path}/calls ;;
            esac""",
        "apt-cache": f"""
            case "$*" in
                *pkgnames*) cat {served}/names ;;
                *) cat {served}/index ;;
            esac""",
        "dpkg-deb": f'echo extract >> {tmp_path}/calls; cat "$2"',
    }
    for name, script in scripts.items():
        path = commands / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")

    def put(packages):
        index = []
        for name, content in packages.items():
            (served / f"{name}_1%3a2_all.deb").write_bytes(content)
            index.append(
                f"Package: {name}\nVersion: 1:2\nArchitecture: all\nSize: {len(content)}\n"
                f"SHA256: {hashlib.sha256(content).hexdigest()}\nDescription: x\n y\n"
            )
        (served / "names").write_text("".join(f"{name}\n" for name in packages))
        (served / "index").write_text("\n".join(index))
        return served

    gimp = {f"usr/share/locale/{code}/LC_MESSAGES/g.mo": catalogue(e) for code, e in GIMP}
    put(
        {
            "gimp-data": package({**gimp, "usr/share/doc/gimp-data/copyright": COPYRIGHT.encode()}),
            "libreoffice-help-en-us": help_page("en-US", "Save it. Then go."),
            "libreoffice-help-fr": help_page("fr", "Enregistrez-le. Puis partez."),
        }
    )
    for code, text in (("en", "Tool"), ("de", "Werkzeug")):
        (served / f"x_i18n_Translation-{code}").write_text(
            f"Package: t\nDescription-md5: 0a\nDescription-{code}: {text}\n"
        )
    return put


def rows(folder):
    return {path.stem: path.read_text("utf-8") for path in sorted(folder.glob("*.tsv"))}


def test_packages_become_a_file_for_each_language(archive, tmp_path, capsys):
    folder = fetch(tmp_path / "work", progress=False)
    assert rows(folder) == {
        "de": "Werkzeug\tTool\tdebian-descriptions\n"
        "Schließen\tClose\tgimp-data\nÖffnen\tOpen\tgimp-data\n",
        "fr": "Enregistrez-le.\tSave it.\tlibreoffice-help-fr\n"
        "Puis partez.\tThen go.\tlibreoffice-help-fr\n",
    }
    record = json.loads((folder / "debian.json").read_text("utf-8"))
    assert record["languages"]["de"] == 3
    assert record["languages"]["sd"] == 0
    assert record["other_languages"] == {"sd_Deva": 2, "zh_Hant": 1}
    assert (record["read"], record["kept"]) == (10, 8)
    assert record["removed"] == {"few letters": 1, "copy of the English": 1}
    assert record["unknown_locales"] == {"en_GB": 1, "zz": 1}
    descriptions, gimp, french = sources(folder)
    assert gimp.pop("hash").startswith("sha256:")
    assert gimp == {
        "kind": "debian/gettext",
        "path": "gimp-data 1:2",
        "licence": "GPL-2+, MIT",
        "licence_source": "/usr/share/doc/gimp-data/copyright in the package",
    }
    assert descriptions["licence"] == "free by the Debian Free Software Guidelines, as all of main"
    assert french["licence"] == "MPL-2.0"
    assert french["licence_source"] == "debian/copyright of the source package"
    assert record["missing_packages"][-2:] == ["wordpress-l10n", "yelp"]
    assert "debian: no package vlc-l10n in the archive, left out\n" in capsys.readouterr().err


def test_variants_and_languages_outside_m4_are_written_where_they_are_asked_for(
    archive, tmp_path, capsys
):
    wanted = ["zho_Hant", "sd_Deva", "hau"]
    folder = fetch(tmp_path / "work", languages=wanted, packages=["gettext"], progress=False)
    assert rows(folder) == {
        "sd_Deva": "खोलो\tOpen\tgimp-data\nबन्द करो\tClose\tgimp-data\n",
        "zh_Hant": "關閉\tClose\tgimp-data\n",
    }
    assert "debian: no text in ha, left out\n" in capsys.readouterr().err
    everything = fetch(tmp_path / "work", any_language=True, progress=False)
    assert list(rows(everything)) == ["de", "fr", "sd_Deva", "zh_Hant"]
    record = json.loads((everything / "debian.json").read_text("utf-8"))
    assert record["languages"] == {"de": 3, "fr": 2, "sd_Deva": 2, "zh_Hant": 1}
    assert record["other_languages"] == {}


def test_a_second_run_takes_what_is_there_and_several_processes_give_the_same(archive, tmp_path):
    first = rows(fetch(tmp_path / "work", progress=False))
    calls = (tmp_path / "calls").read_text()
    assert calls.split().count("update") == 1
    written = (tmp_path / "work" / "pairs" / "de.tsv").stat().st_mtime_ns
    assert rows(fetch(tmp_path / "work", progress=False)) == first
    assert (tmp_path / "calls").read_text() == calls
    assert (tmp_path / "work" / "pairs" / "de.tsv").stat().st_mtime_ns == written
    (tmp_path / "work" / "pairs" / "de.tsv").unlink()
    assert rows(fetch(tmp_path / "work", progress=False)) == first
    assert rows(fetch(tmp_path / "other", processes=2, progress=True)) == first


def test_a_package_that_was_cut_off_is_downloaded_again_and_read_again(archive, tmp_path):
    first = rows(fetch(tmp_path / "work", packages=["gimp-data"], progress=False))
    (deb,) = (tmp_path / "work" / "packages").iterdir()
    deb.write_bytes(deb.read_bytes()[:1000])
    (tmp_path / "work" / "extracted" / "gimp-data.json").unlink()
    assert rows(fetch(tmp_path / "work", packages=["gimp-data"], progress=False)) == first


def test_a_package_that_cannot_be_read_is_named_and_left_out(archive, tmp_path, capsys):
    archive({"gimp-data": b"no tar" * 200, "gedit-common": package({})})
    with_nothing = fetch(tmp_path / "work", packages=["gimp-data", "gedit-common"], progress=False)
    record = json.loads((with_nothing / "debian.json").read_text("utf-8"))
    assert list(record["broken_packages"]) == ["gimp-data"]
    assert "debian: package gimp-data cannot be read: gimp-data_1%3a2_all.deb: " in (
        capsys.readouterr().err
    )
    assert rows(with_nothing) == {}


def test_help_without_its_english_package_is_left_out(archive, tmp_path, capsys):
    archive({"libreoffice-help-fr": help_page("fr", "Oui."), "gimp-data": package({})})
    folder = fetch(
        tmp_path / "work",
        languages=["fr"],
        packages=["libreoffice-help", "gimp-data"],
        progress=False,
    )
    assert rows(folder) == {}
    assert capsys.readouterr().err == (
        "debian: no package libreoffice-help-en-us, the English of libreoffice-help: left out\n"
        "debian: no text in fr, left out\n"
    )


def test_what_is_neither_collection_nor_package_and_unknown_languages_are_refused(
    archive, tmp_path
):
    with pytest.raises(InputError) as error:
        fetch(tmp_path / "work", packages=["gettext", "emacs", "x"], progress=False)
    collections = (
        "collections are gettext, libreoffice, libreoffice-help, firefox, thunderbird, mediawiki,"
        " gnome-help, wesnoth, descriptions"
    )
    assert error.value.faults == (
        f"'emacs' is neither a collection nor one of their packages; {collections}",
        f"'x' is neither a collection nor one of their packages; {collections}",
    )
    with pytest.raises(InputError, match=r"^unknown language 'germn'.*\nlanguage 'en' is English"):
        fetch(tmp_path / "work", languages=["germn", "de", "en"], progress=False)


def test_an_archive_without_any_of_the_packages_is_refused(archive, tmp_path):
    archive({"emacs": b""})
    with pytest.raises(InputError, match=r"^not one of the packages is in the archive of /etc/apt"):
        fetch(tmp_path / "work", packages=["gettext"], progress=False)


def test_a_system_without_apt_is_refused_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError) as error:
        fetch(tmp_path / "work", progress=False)
    assert error.value.faults == (
        "--source=debian needs apt-get, apt-cache, dpkg-deb, which Debian and systems made from it"
        " have; run it there (a Debian container will do), copy the result, and use --source=tsv"
        " here",
    )


def test_what_apt_says_is_passed_on(archive, tmp_path):
    apt = tmp_path / "commands" / "apt-get"
    apt.write_text("#!/bin/sh\necho 'E: Could not resolve deb.debian.org' >&2\nexit 100\n")
    with pytest.raises(InputError) as error:
        fetch(tmp_path / "work", progress=False)
    assert error.value.faults == ("apt-get -qq update failed: E: Could not resolve deb.debian.org",)


def test_half_a_download_is_not_taken_for_whole(archive, tmp_path):
    served = archive({"gimp-data": package({}), "yelp": package({}), "orca": package({})})
    (served / "yelp_1%3a2_all.deb").write_bytes(b"something else")
    with pytest.raises(InputError) as error:
        fetch(tmp_path / "kept", packages=["gettext"], progress=False)
    assert error.value.faults == (
        f"1 of 3 packages could not be downloaded (yelp); run the same command again to go on, or,"
        f" if the archive has newer versions by now, remove {tmp_path}/kept/apt first",
    )


def test_a_copyright_file_in_words_is_named_as_such(archive, tmp_path):
    archive({"yelp": package({"usr/share/doc/yelp/copyright": b"Free.\n", **GERMAN})})
    (source,) = sources(fetch(tmp_path / "work", packages=["yelp"], progress=False))
    assert source["licence"] == "GPL-2+, GPL-3+, LGPL-2+, MIT, BSD by package"
    assert source["licence_source"] == "/usr/share/doc/yelp/copyright in the package, in words"


def test_two_runs_do_not_share_a_folder(archive, tmp_path):
    (tmp_path / "work").mkdir()
    with (tmp_path / "work" / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InputError, match=r"^another process is at work in .*/work; wait for"):
            fetch(tmp_path / "work", progress=False)


def test_a_folder_that_cannot_be_made_is_named(archive, tmp_path):
    (tmp_path / "work").write_text("a file")
    with pytest.raises(InputError, match=r"^cannot work in .*/work: "):
        fetch(tmp_path / "work", progress=False)


def test_licences_are_those_that_a_copyright_file_names():
    assert licences(b"License: MIT\n text\nLicense: GPL-2+\nLicense:\n other\n") == [
        "GPL-2+",
        "MIT",
    ]
    assert licences(b"This package was debianized by hand.\n") == []
