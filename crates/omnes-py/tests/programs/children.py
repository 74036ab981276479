"""What programs that fork do with their children."""

import os
import traceback


def in_child(check, end):
    """Runs the check in a forked child, where it must succeed and end() must end it well."""
    child = os.fork()
    if child == 0:
        try:
            check()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        end()
    assert os.waitpid(child, 0)[1] == 0


def refused(*calls):
    """Each of them is, in words of processes."""
    for call in calls:
        try:
            call()
        except ValueError as error:
            assert "process" in str(error), error
        else:
            raise AssertionError("not refused")
