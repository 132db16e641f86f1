"""How FUSE mounts get their requests while steps run: the system's switch for io_uring."""

import contextlib
import os
from pathlib import Path

SWITCH = Path("/sys/module/fuse/parameters/enable_uring")


@contextlib.contextmanager
def transport(over_uring, switch=SWITCH):
    """Sets the switch and puts it back at the end. Yields why that cannot be, or None. `None` leaves it alone."""
    if over_uring is None:
        yield None
        return
    wanted = "Y" if over_uring else "N"
    try:
        before = switch.read_text().strip()
        if before != wanted:
            switch.write_text(wanted)
    except OSError as error:
        # A user that may not set the switch has mounts as the system makes them.
        yield f"FUSE over io_uring cannot be switched on: {os.strerror(error.errno)}" if over_uring else None
        return
    try:
        yield None
    finally:
        switch.write_text(before)
