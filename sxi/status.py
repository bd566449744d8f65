"""How a run stands, `status.json`: replaced whole, at most once a second, and judged by whoever reads it."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sxi import codes
from sxi.errors import SxiError
from sxi.stream import plain

FILE = "status.json"
# The states of a run whose process must be there.
_ALIVE = frozenset({"starting", "running"})


class Status:
    """Keeps the status file of a run: `state step error pid pid_started host ranks device started updated throughput`.

    state:        "starting", "running", "done", "failed" or "stopped"
    pid_started:  when the process began, in the clock ticks of /proc, so that no other of its number is taken for it
    throughput:   steps per second
    """

    def __init__(
        self,
        folder: Path,
        *,
        clock: Callable[[], float] = time.time,
        between: float = 1.0,
        **fields: Any,
    ) -> None:
        """Writes the first status, "starting" with `fields`, into `folder`.

        clock:    gives the time, in seconds since 1970
        between:  seconds that a replacement waits for after the last, unless the state changes
        raises:   E-RUN-032 where it cannot be written, as does `update`
        """
        self.path = folder / FILE
        self._temporary = folder / f".{FILE}.tmp"
        self._clock, self._between = clock, between
        self._written = -float("inf")
        pid = os.getpid()
        self.fields: dict[str, Any] = {
            "state": "starting",
            "step": 0,
            "error": None,
            "pid": pid,
            "pid_started": _process(pid)[1],
            "host": socket.gethostname(),
            "ranks": 1,
            "device": None,
            "started": _iso(clock()),
            "updated": None,
            "throughput": None,
        }  # fmt: skip - in groups
        self.update(force=True, **fields)

    @property
    def is_due(self) -> bool:
        """Whether an `update` that changes no state would be written now."""
        # A clock that was set back counts as one that has run out.
        return not 0 <= self._clock() - self._written < self._between

    def update(self, *, force: bool = False, **fields: Any) -> None:
        """Takes `fields` over; the file follows at once where the state changes or `force`, else within `between`."""
        changes = fields.get("state", self.fields["state"]) != self.fields["state"]
        self.fields.update(fields)
        now = self._clock()
        if force or changes or self.is_due:
            self._written = now
            self.fields["updated"] = _iso(now)
            self._replace(sync=force or changes)

    def _replace(self, *, sync: bool) -> None:
        text = json.dumps(plain(self.fields), allow_nan=False, indent=1) + "\n"
        try:
            with open(self._temporary, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            os.replace(self._temporary, self.path)
        except BaseException as error:
            with suppress(OSError):
                self._temporary.unlink()
            if isinstance(error, OSError):
                raise codes.STATUS_NOT_WRITTEN.at(None, path=self.path, reason=error.strerror or error) from None
            raise


def read_status(folder: Path) -> dict[str, Any]:
    """The status of the run in `folder`; its state is "dead" where it should be going on and its process is gone.

    A process of another machine is believed.  Raises E-RUN-033.
    """
    path = folder / FILE
    try:
        fields = json.loads(path.read_bytes())
    except OSError as error:
        raise _not_read(path, error.strerror or error) from None
    except (ValueError, RecursionError):
        raise _not_read(path, "it is no JSON") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("state"), str):
        raise _not_read(path, "it says no state")
    here = fields.get("host") in (None, socket.gethostname())
    if fields["state"] in _ALIVE and here and not _is_alive(fields.get("pid"), fields.get("pid_started")):
        fields["state"] = "dead"
    return fields


def _not_read(path: Path, reason: object) -> SxiError:
    return codes.STATUS_NOT_READ.at(None, path=path, reason=reason)


def _is_alive(pid: object, started: object) -> bool:
    """Whether the process `pid` that began at `started` is there."""
    if not isinstance(pid, int) or not 0 < pid < 2**31:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is there, and another user's
    state, began = _process(pid)
    if state is None:  # there is no /proc to ask
        return True
    return state not in ("Z", "X") and (started is None or started == began)


def _process(pid: int) -> tuple[str | None, int | None]:
    """The state of a process, a letter, and when it began, in ticks since the machine did; None without /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None, None
    # The name before may hold anything, a bracket too; proc(5) counts the state as field 3, the start as 22.
    fields = text[text.rindex(")") + 1 :].split()
    return fields[0], int(fields[19])


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
