"""Signal handlers have their turn while a call waits, and what they raise ends it."""

import os
import signal
import threading
import time

import omnes


class Ended(Exception):
    """What the handler raises."""


def end(*_):
    raise Ended


def interrupted(call, signals=signal.SIGTERM):
    """Whether the call ends by a signal that comes while it waits."""
    main = threading.get_ident()
    sender = threading.Thread(target=lambda: (time.sleep(0.2), signal.pthread_kill(main, signals)))
    sender.start()
    try:
        call()
    except (Ended, KeyboardInterrupt):
        return True
    finally:
        sender.join()
    return False


signal.signal(signal.SIGTERM, end)
if os.environ["OMNES_RANK"] == "1":
    # Nobody is where rank 0 should be.
    own = os.environ["OMNES_RENDEZVOUS"]
    os.environ["OMNES_RENDEZVOUS"] = "127.0.0.1:1"
    assert interrupted(omnes.Communicator.from_env)
    assert interrupted(omnes.Communicator.from_env, signal.SIGINT)
    os.environ["OMNES_RENDEZVOUS"] = own
with omnes.Communicator.from_env() as world:
    if world.rank == 0:
        room = bytearray(4)
        assert interrupted(lambda: world.recv(room, 1, tag=1))
        assert interrupted(lambda: world.recv(room, 1, tag=1), signal.SIGINT)
        assert interrupted(lambda: world.irecv(room, 1, tag=1).wait())
        assert interrupted(lambda: world.bcast(room, root=1))
        assert interrupted(world.barrier)
        world.send(b"", 1, tag=2)
        # What a receive that was given up has waited for comes to the next one.
        world.recv(room, 1, tag=1)
        assert room == b"here", room
    else:
        world.recv(bytearray(0), 0, tag=2)
        world.send(b"here", 0, tag=1)
        world.bcast(bytearray(4), root=1)
        # The other rank has entered it, though it has not waited.
        world.barrier()
    world.barrier()
