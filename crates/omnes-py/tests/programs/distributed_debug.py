"""With PyTorch's detailed debugging, ranks that make different calls get an error."""

import omnes
import omnes.distributed
import torch
import torch.distributed as dist

dist.set_debug_level(dist.DebugLevel.DETAIL)
dist.init_process_group("omnes")
tensor = torch.ones(3)
work = dist.all_reduce(tensor, async_op=True)
work.wait()
assert tensor[0] == dist.get_world_size()
try:
    if dist.get_rank() == 1:
        dist.broadcast(tensor, 0)
    else:
        dist.all_reduce(tensor)
except omnes.Mismatch as error:
    assert "bcast" in str(error) and "allreduce" in str(error), error
else:
    raise AssertionError("nobody has told")
# They continue together.
dist.all_reduce(tensor)
dist.barrier()
dist.destroy_process_group()
