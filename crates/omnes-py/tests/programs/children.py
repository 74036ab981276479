"""Helpers for programs that fork."""

import os
import traceback


def in_child(check, end):
    """Runs the check in a forked child, where it must succeed; end() then must end the child
    successfully.
    """
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
    """Asserts that each call is rejected, with an error that mentions processes."""
    for call in calls:
        try:
            call()
        except ValueError as error:
            assert "process" in str(error), error
        else:
            raise AssertionError("not refused")
