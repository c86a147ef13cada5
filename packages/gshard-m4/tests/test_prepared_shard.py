import gzip
import re
import subprocess
import threading
import tracemalloc

import pytest

from gshard_m4.input_error import InputError
from gshard_m4.prepared import Shard, ShardWriter, layout

ROWS = [(f"Zeile {i}\u2028\x85é", f"row {i} \U0001f600", "" if i % 3 else "ted") for i in range(50)]


def write(path, rows):
    with ShardWriter(path) as writer:
        for row in rows:
            writer.write(*row)
    return writer


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 50])
def test_rows_come_back_one_by_one_and_in_order(tmp_path, count):
    path = tmp_path / "new" / "train-00000-of-00001.tsv.gz"
    writer = write(path, ROWS[:count])
    assert (writer.rows, writer.bytes) == (count, path.stat().st_size)
    shard = Shard(path)
    assert len(shard) == count
    assert list(shard) == ROWS[:count]
    assert [shard[i] for i in range(count)] == [row[:2] for row in ROWS[:count]]
    assert shard.rows(reversed(range(count))) == [row[:2] for row in ROWS[:count][::-1]]


def test_the_index_goes_on_where_one_member_of_it_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "OFFSETS_PER_MEMBER", 2)
    monkeypatch.setattr(layout, "INDEX_MEMBER_BYTES", layout.FIRST_OFFSET + 3 * 8 + 10)
    for count in (31, 32, 33, 50):
        write(tmp_path / "x.tsv.gz", ROWS[:count])
        shard = Shard(tmp_path / "x.tsv.gz")
        assert [shard[i] for i in range(count)] == [row[:2] for row in ROWS[:count]]
        assert list(shard) == ROWS[:count]
        assert gzip.decompress((tmp_path / "x.tsv.gz").read_bytes()).count(b"\n") == count


def test_other_readers_of_gzip_see_plain_lines(tmp_path):
    write(tmp_path / "x.tsv.gz", ROWS)
    text = "".join("\t".join(row) + "\n" for row in ROWS)
    zcat = subprocess.run(["gzip", "-dc", tmp_path / "x.tsv.gz"], capture_output=True, check=True)
    assert (zcat.stdout.decode(), zcat.stderr) == (text, b"")
    with gzip.open(tmp_path / "x.tsv.gz", "rt", encoding="utf-8", newline="\n") as file:
        assert file.read() == text


def test_the_same_rows_give_the_same_bytes_and_their_hash(tmp_path):
    first, second = (write(tmp_path / f"{n}.tsv.gz", ROWS) for n in "ab")
    assert (tmp_path / "a.tsv.gz").read_bytes() == (tmp_path / "b.tsv.gz").read_bytes()
    sha256 = subprocess.run(["sha256sum", first.path], capture_output=True, check=True).stdout
    assert first.sha256 == second.sha256 == sha256.decode().split()[0]


def test_a_row_that_is_no_line_of_three_fields_is_refused_and_nothing_is_left(tmp_path):
    for bad in (("a\tb", "c"), ("a", "b\nc"), ("a", "b", "c\r")):
        message = (
            f"shard: row 1 of '{tmp_path / 'x.tsv.gz'}' has a tab, line feed or carriage return in"
            f" its text: {(*bad, '')[:3]!r}"
        )
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            write(tmp_path / "x.tsv.gz", [ROWS[0], bad])
    with pytest.raises(UnicodeEncodeError):
        write(tmp_path / "x.tsv.gz", [("\ud800", "lone surrogate")])
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_writer_leaves_the_file_that_was_there(tmp_path):
    write(tmp_path / "x.tsv.gz", ROWS)
    with pytest.raises(ZeroDivisionError):
        write(tmp_path / "x.tsv.gz", ((str(1 // i), "") for i in (1, 0)))
    assert list(Shard(tmp_path / "x.tsv.gz")) == ROWS
    assert len(list(tmp_path.iterdir())) == 1


def test_writers_are_used_in_a_with_block_and_end_as_shards_do(tmp_path):
    with pytest.raises(ValueError, match=r"^shard: .* does not end with \.tsv\.gz$"):
        ShardWriter(tmp_path / "x.gz")
    writer = ShardWriter(tmp_path / "x.tsv.gz")
    with pytest.raises(ValueError, match=r"inside `with ShardWriter\(\.\.\.\)`$"):
        writer.__exit__(None, None, None)


@pytest.mark.parametrize("kept", [0, 10, 300, -1])
def test_files_that_are_cut_off_are_refused(tmp_path, kept):
    write(tmp_path / "x.tsv.gz", ROWS)
    data = (tmp_path / "x.tsv.gz").read_bytes()
    (tmp_path / "x.tsv.gz").write_bytes(data[:kept])
    message = (
        f"{tmp_path / 'x.tsv.gz'}: cut off or not a shard of this package; prepare the data again"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        Shard(tmp_path / "x.tsv.gz")


def test_other_gzip_files_and_missing_ones_are_refused(tmp_path):
    (tmp_path / "x.tsv.gz").write_bytes(gzip.compress(b"a\tb\t\n" * 1000))
    with pytest.raises(InputError, match="cut off or not a shard of this package"):
        Shard(tmp_path / "x.tsv.gz")
    message = f"{tmp_path / 'y.tsv.gz'}: cannot be read (No such file or directory)"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        Shard(tmp_path / "y.tsv.gz")


def test_a_damaged_member_is_an_error_where_it_is_read(tmp_path):
    write(tmp_path / "x.tsv.gz", ROWS)
    data = bytearray((tmp_path / "x.tsv.gz").read_bytes())
    data[30] ^= 255
    (tmp_path / "x.tsv.gz").write_bytes(data)
    shard = Shard(tmp_path / "x.tsv.gz")
    assert shard[40] == ROWS[40][:2]
    for read in (lambda: shard[3], lambda: list(shard)):
        with pytest.raises(InputError, match=r"x\.tsv\.gz: damaged \(.*\); prepare the data again"):
            read()


def test_rows_outside_are_refused_and_negative_ones_count_from_the_end(tmp_path):
    write(tmp_path / "x.tsv.gz", ROWS)
    shard = Shard(tmp_path / "x.tsv.gz")
    assert shard[-1] == ROWS[-1][:2]
    for row in (50, -51):
        with pytest.raises(IndexError, match=f"^row {row} of 50 in "):
            shard[row]
        with pytest.raises(IndexError):
            shard.rows([row])


def test_threads_may_share_a_shard(tmp_path):
    write(tmp_path / "x.tsv.gz", ROWS)
    shard, wrong = Shard(tmp_path / "x.tsv.gz"), []

    def read():
        wrong.extend(i for _ in range(20) for i in range(50) if shard[i] != ROWS[i][:2])

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_does_not_grow_with_the_file(tmp_path):
    write(tmp_path / "x.tsv.gz", ROWS * 800)
    shard = Shard(tmp_path / "x.tsv.gz")
    tracemalloc.start()
    for i in range(0, len(shard), 7):
        shard[i]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000 < (tmp_path / "x.tsv.gz").stat().st_size
