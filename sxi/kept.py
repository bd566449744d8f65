"""The inputs that were typed, kept in a file between sessions: one JSON string a line, readable by its owner only.

What cannot be read is skipped and what cannot be written is not: a history is never a reason to stop.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

# Where the file grows past this many bytes only its end is read, and kept.
_MOST = 1 << 20
# A longer input is not kept.
_LONGEST = 20_000


def default_path() -> Path:
    """`$SXI_HISTORY`, or `sxi/history` in the folder for state of the XDG directories."""
    given = os.environ.get("SXI_HISTORY")
    if given:
        return Path(given)
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(state) / "sxi" / "history"


class KeptLines:
    """The history file: read once at the beginning, an input appended as it is given."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_path()
        self.last: str | None = None

    def read(self) -> list[str]:
        """The inputs that are kept, oldest first; what is not one is left out."""
        try:
            # not blocking: something else than a file may stand in its place
            with open(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    return []
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _MOST))
                raw = file.read(_MOST)
        except (OSError, ValueError):
            return []
        found = []
        lines = raw.split(b"\n")
        for line in lines[1:] if size > _MOST else lines:
            try:
                text = json.loads(line.decode())
            except ValueError:
                continue
            if isinstance(text, str) and text.strip():
                found.append(text)
        if size > 2 * _MOST:
            self._write(found, os.O_TRUNC)
        self.last = found[-1] if found else None
        return found

    def add(self, text: str) -> None:
        """Keep one more input; the same twice in a row is kept once."""
        if not text.strip() or len(text) > _LONGEST or text == self.last:
            return
        self.last = text
        self._write([text], os.O_APPEND)

    def _write(self, texts: list[str], how: int) -> None:
        data = "".join([json.dumps(text) + "\n" for text in texts]).encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # a link or a device in its place would be followed or would wait: only a file is written
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | how, 0o600)
        except (OSError, ValueError):
            return
        try:
            os.fchmod(descriptor, 0o600)
            os.write(descriptor, data)
        except OSError:
            pass
        finally:
            os.close(descriptor)
