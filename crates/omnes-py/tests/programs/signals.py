"""Signal handlers run while a call waits, and their exceptions end it."""

import os
import signal
import threading
import time

import omnes


class Ended(Exception):
    """The exception that the handler raises."""


def end(*_):
    raise Ended


def interrupted(call, signals=signal.SIGTERM, begun=None):
    """True if the call ends by a signal that arrives while it waits, after it has `begun` to."""
    main = threading.get_ident()

    def send():
        if begun is not None:
            begun.wait()
        time.sleep(0.2)
        signal.pthread_kill(main, signals)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        call()
    except (Ended, KeyboardInterrupt):
        return True
    finally:
        sender.join()
    return False


def end_after_message(*_):
    """Raises when the message that the call waits for is there."""
    world.send(b"", 1, tag=3)
    # A message that arrives after it; code that runs while a call waits should not wait itself.
    while not world.iprobe(1, tag=4):
        pass
    raise Ended


signal.signal(signal.SIGTERM, end)
if os.environ["OMNES_RANK"] == "1":
    # Nothing listens at the address of rank 0.
    own = os.environ["OMNES_RENDEZVOUS"]
    os.environ["OMNES_RENDEZVOUS"] = "127.0.0.1:1"
    assert interrupted(omnes.Communicator.from_env)
    assert interrupted(omnes.Communicator.from_env, signal.SIGINT)
    os.environ["OMNES_RENDEZVOUS"] = own
with omnes.Communicator.from_env() as world:
    if world.rank == 0:
        room = bytearray(4)
        assert interrupted(lambda: world.recv(room, 1, tag=1))
        request = world.irecv(room, 1, tag=1)
        signal.signal(signal.SIGTERM, lambda *_: request.wait())
        try:
            interrupted(request.wait)
        except RuntimeError as error:
            assert "already waits for the request" in str(error), error
        else:
            raise AssertionError("a handler has waited for what it interrupts")
        signal.signal(signal.SIGTERM, end)
        assert interrupted(lambda: world.recv(room, 1, tag=1), signal.SIGINT)
        assert interrupted(lambda: world.irecv(room, 1, tag=1).wait())
        assert interrupted(lambda: world.bcast(room, root=1))
        assert interrupted(world.barrier)
        world.send(b"", 1, tag=2)
        # The message of a receive that was given up goes to the next one.
        world.recv(room, 1, tag=1)
        assert room == b"here", room
        # A receive that ends while the handler runs has succeeded, and the handler's exception is
        # raised.
        signal.signal(signal.SIGTERM, end_after_message)
        assert interrupted(lambda: world.recv(room, 1, tag=5))
        assert room == b"past", room
        world.recv(bytearray(0), 1, tag=4)
        request = world.irecv(room, 1, tag=5)
        assert interrupted(request.wait)
        assert request.status == (1, 5, 4) and room == b"next", (request.status, room)
        request.wait()
        assert request.test()
        world.recv(bytearray(0), 1, tag=4)
        signal.signal(signal.SIGTERM, end)
        # Nothing of it remains.
        world.send(b"", 1, tag=3)
        world.recv(bytearray(0), 1, tag=4)
    else:
        world.recv(bytearray(0), 0, tag=2)
        world.send(b"here", 0, tag=1)
        for message in b"past", b"next":
            world.recv(bytearray(0), 0, tag=3)
            world.send(message, 0, tag=5)
            world.send(b"", 0, tag=4)
        world.recv(bytearray(0), 0, tag=3)
        time.sleep(0.1)
        world.send(b"", 0, tag=4)
        world.bcast(bytearray(4), root=1)
        # The other rank has entered the barrier, although it has not waited.
        world.barrier()
    world.barrier()

    # The same while ranks join by an exchange: rank 1 is late.
    os.environ["OMNES_JOIN_TIMEOUT"] = "10s"
    calls = 0
    begun = threading.Event()

    def allgather(own):
        global calls
        calls += 1
        table = bytearray(len(own) * 2)
        world.allgather(own, table)
        # Now they know each other's addresses.
        if calls == 4:
            begun.set()
            time.sleep(1.5 if world.rank == 1 else 0)
        return [bytes(table[: len(own)]), bytes(table[len(own) :])]

    if world.rank == 0:
        assert interrupted(lambda: omnes.join(0, 2, allgather), begun=begun)
    else:
        try:
            omnes.join(1, 2, allgather)
        except omnes.Exchange as error:
            assert error.rank == 0 and "interrupted" in str(error), error
        else:
            raise AssertionError("rank 0 was interrupted")
    world.barrier()
