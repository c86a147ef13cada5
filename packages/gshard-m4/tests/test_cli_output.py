import subprocess
import sys


def test_a_reader_that_has_seen_enough_ends_the_command_without_a_word():
    command = f"{sys.executable} -m gshard_m4 languages | head -1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("code")
    assert done.stderr == ""
