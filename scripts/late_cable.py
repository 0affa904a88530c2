"""A cable between two network namespaces that holds packets up, for scripts/hosts.py:

    scripts/late_cable.py NAMESPACE NAMESPACE

Makes an interface `cable` in each and says "laid". Each line of standard input says how many seconds packets take from then on, at
first none; the cable goes with its end.
"""
import ctypes
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h
LONGEST_PACKET = 1 << 16


def end_in(namespace):
    """Of the packets that come to it, the kernel has made whole ones: checksums are there, and none is longer than a frame."""
    entrance = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(entrance, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    os.close(entrance)
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", b"cable", IFF_TUN | IFF_NO_PI))
    return end


def take(end, queue, moment):
    """What has come to one end is to leave the other at that moment."""
    try:
        while True:
            queue.append((moment, os.read(end, LONGEST_PACKET)))
    except BlockingIOError:
        pass


def let_go(end, queue, now):
    while queue and queue[0][0] <= now:
        try:
            os.write(end, queue.popleft()[1])
        except OSError:
            pass  # an end that is down loses packets, as cables do


def carry(ends):
    seconds, queues = 0.0, [deque(), deque()]
    while True:
        moments = [queue[0][0] for queue in queues if queue]
        timeout = max(0.0, min(moments) - time.monotonic()) if moments else None
        ready = select.select([0, *ends], [], [], timeout)[0]
        if 0 in ready:
            told = os.read(0, 1000).split()
            if not told:
                return
            seconds = float(told[-1])
        now = time.monotonic()
        for end, queue in zip(ends, reversed(queues)):
            if end in ready:
                take(end, queue, now + seconds)
        for end, queue in zip(ends, queues):
            let_go(end, queue, now if seconds else float("inf"))


if __name__ == "__main__":
    both = [end_in(namespace) for namespace in sys.argv[1:3]]
    print("laid", flush=True)
    carry(both)
