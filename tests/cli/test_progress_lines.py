"""Progress where standard error is a file: lines, few of them, with counts and rates."""

from __future__ import annotations

import io
import subprocess
import sys

from probekit.runtime import progress_lines


def test_a_line_every_ten_seconds():
    now, out = [0.0], io.StringIO()
    show = progress_lines(out, lambda: now[0])
    for second in range(1, 61):
        now[0] = float(second)
        show("encoding", second * 10, 600, pieces=second * 1000)
    told = out.getvalue().splitlines()
    assert len(told) == 6
    assert told[0] == "encoding: 100 of 600 (17 %), 1,111 pieces/s, 50 s left"
    assert told[-1].startswith("encoding: 600 of 600 (100 %)")
    assert not told[-1].endswith("left")


def test_nothing_of_short_work_and_a_new_start_for_other_work():
    now, out = [0.0], io.StringIO()
    show = progress_lines(out, lambda: now[0])
    for second in range(9):
        now[0] = float(second)
        show("fits", second, 9)
    assert out.getvalue() == ""
    now[0] = 11.0
    show("fits", 1, 50)  # another piece of work: no rate of the one before
    assert out.getvalue() == "fits: 1 of 50 (2 %)\n"


def test_a_pipe_gets_lines_and_no_escapes(monkeypatch):
    monkeypatch.delenv("PROBEKIT_PROGRESS")
    script = (
        "import probekit.progress as p, probekit.runtime as runtime\n"
        "runtime.EVERY = 0.0\n"
        "with p.display() as show:\n"
        "    show('layers', 1, 4); show('layers', 4, 4)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[0] == "layers: 1 of 4 (25 %)"
    assert done.stderr.splitlines()[1].startswith("layers: 4 of 4 (100 %)")
    assert "\x1b" not in done.stderr + done.stdout
