"""A communicator that is dropped, or a request that has ended and was the last to hold one, leaves
the job: meanwhile other threads go on, and what a signal handler raises comes afterwards."""

import os
import signal
import sys
import threading
import time

import omnes
from stopping import stop, stopped


class Ended(Exception):
    """What the handler raises."""


def end(*_):
    raise Ended


world = omnes.Communicator.from_env()
if world.rank == 1:
    stop(world)
else:
    other = stopped(world, 1)
    # Who leaves waits for its answer, which cannot come.
    request = world.isend(b"late", 1)
    if sys.argv[1] == "communicator":
        request.wait()
    signal.signal(signal.SIGALRM, end)
    sys.setswitchinterval(1000)  # a thread comes to its turn only where another makes room
    go, ran = threading.Event(), []
    waiting = threading.Thread(target=lambda: (go.wait(), ran.append(True)))
    waiting.start()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        go.set()
        del world
        request.test()
        time.sleep(10)
    except Ended:
        assert ran, "the other thread has waited"
    else:
        raise AssertionError("the handler had no turn")
    finally:
        os.kill(other, signal.SIGCONT)
    waiting.join()
