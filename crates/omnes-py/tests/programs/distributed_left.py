"""A rank ends its last group while others reduce: their calls fail, however few numbers they have,
and do not take any message of its end for its part; with 3 ranks.
"""

import omnes
import omnes.distributed
import torch
import torch.distributed as dist
from omnes import _ending

_ending.MEETING_S = 0.3
dist.init_process_group("omnes")
dist.all_reduce(torch.zeros(3))
if dist.get_rank():
    for length in (1, 4, 1000):
        number = torch.full((length,), 5.0)
        try:
            dist.all_reduce(number, dist.ReduceOp.MIN)
        except omnes.PeerLeft as error:
            assert error.rank == 0, error
        except omnes.CollectivesBroken as error:
            # Another rank was notified before.
            assert error.collective == "allreduce", error
        else:
            raise AssertionError(f"rank 0 had no part in {number}")
dist.destroy_process_group()
