"""dax.py write|check PATH... - fills or checks 2 MiB of each mapping; MAP_SYNC is refused where there is no DAX."""

import ctypes
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
MAP_SHARED_VALIDATE, MAP_SYNC = 3, 0x80000
SIZE = 2 << 20


def mapping(path):
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    if os.path.isfile(path):
        os.ftruncate(fd, SIZE)
    address = libc.mmap(None, ctypes.c_size_t(SIZE), 3, MAP_SHARED_VALIDATE | MAP_SYNC, fd, ctypes.c_long(0))
    if address == ctypes.c_void_p(-1).value:
        sys.exit(f"{path}: MAP_SYNC: {os.strerror(ctypes.get_errno())}")
    return (ctypes.c_char * SIZE).from_address(address)


for path in sys.argv[2:]:
    content = (path * SIZE)[:SIZE].encode()
    if sys.argv[1] == "write":
        mapping(path)[:] = content
    elif mapping(path)[:] != content:
        sys.exit(f"{path}: the content is lost")
    print(f"{path}: MAP_SYNC, {SIZE} bytes, {sys.argv[1]} ok")
