"""After an error of a push, no more data arrive, even if a traceback holds what was started;
requires PyTorch.
"""

import os
import traceback

import torch

import omnes
import omnes.torch

world = omnes.Communicator.from_env()
# Received through a copy, since their elements are not contiguous.
own = {str(i): torch.zeros(500, 500).t() for i in range(20)}
weights = omnes.torch.Weights(world, own)
world.barrier()
if world.rank == 1:
    os._exit(0)
try:
    weights.bcast(root=1)
except omnes.PeerFailed as error:
    assert error.rank == 1, error
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    [under_way] = [f.f_locals["under_way"] for f in frames if "under_way" in f.f_locals]
    assert under_way, "several are under way at a time"
    assert all(each._request is None for each in under_way)
else:
    raise AssertionError("nobody has noticed")
