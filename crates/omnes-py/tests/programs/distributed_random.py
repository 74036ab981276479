"""Random programs of torch.distributed: each result against what every rank can compute alone.

    distributed_random.py [SEED [SEEDS [STEPS]]]

All ranks draw the same steps from a seed: groups that begin and end, collectives of any of them on
tensors of many types, shapes and layouts, waited for immediately or later and in another order, and
messages. Each rank draws for itself what only it sees, such as a layout.
"""

import concurrent.futures
import random
import sys

import omnes.distributed  # noqa: F401
import torch
import torch.distributed as dist

Op = dist.ReduceOp

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
COMBINED = {
    Op.SUM: lambda table: table.sum(0),
    Op.PRODUCT: lambda table: table.prod(0),
    Op.MIN: lambda table: table.amin(0),
    Op.MAX: lambda table: table.amax(0),
}
# Numbers of elements of a tensor: none, one, a packet of them, a train, several trains.
COUNTS = [0, 1, 2, 3, 7, 100, 1500, 20_000, 150_000]


class Step:
    """The next step of all ranks of a group: drawn identically by all, run by its members."""

    def __init__(self, draw, group, ranks):
        self.group, self.ranks = group, ranks
        self.size = len(ranks)
        self.dtype = draw.choice(FLOATS + INTEGERS)
        self.shape = self._shape(draw, draw.choice(COUNTS))
        self.root = draw.randrange(self.size)
        self.op = draw.choice(list(COMBINED))
        self.is_async = draw.random() < 0.6
        self.seed = draw.randrange(1 << 30)
        self.cuts = [draw.randrange(4) for _ in range(self.size * self.size)]
        self.own = None  # this rank's index in the group
        self.local = None  # this rank's own random numbers

    @staticmethod
    def _shape(draw, count):
        if count == 1 and draw.random() < 0.5:
            return ()
        columns = draw.choice([each for each in (1, 2, 4, 5) if count % each == 0])
        return (count // columns, columns)

    def data(self, member, shape=None):
        """A member's data: numbers so small that sums and products of all are exact."""
        generator = torch.Generator().manual_seed(self.seed + 7919 * member)
        shape = self.shape if shape is None else shape
        return torch.randint(1, 3, shape, generator=generator).to(self.dtype)

    def all_data(self):
        return [self.data(member) for member in range(self.size)]

    def laid_out(self, tensor):
        """The same numbers in one of the layouts that tensors can have."""
        if tensor.dim() != 2:
            return tensor.clone()
        rows, columns = tensor.shape
        kind = self.local.randrange(4)
        if kind == 0:
            return tensor.clone()
        if kind == 1:
            return tensor.t().contiguous().t()
        if kind == 2:
            wide = torch.zeros(rows, columns + 3, dtype=tensor.dtype)
            place = wide[:, 1 : 1 + columns]
        else:
            place = torch.zeros(2 * rows, columns, dtype=tensor.dtype)[::2]
        return place.copy_(tensor)

    def empty(self, shape=None):
        """A tensor to write to, which holds other numbers."""
        shape = self.shape if shape is None else shape
        return self.laid_out(torch.full(shape, 77, dtype=self.dtype))

    def run(self, rank, local):
        """Starts the step. Returns the work, or None, and the check for when it has ended."""
        self.own, self.local = self.ranks.index(rank), local
        return self.begin()

    def options(self):
        return {"group": self.group, "async_op": self.is_async}


def all_equal(places, wanted):
    return all(
        place.shape == each.shape and torch.equal(place, each)
        for place, each in zip(places, wanted, strict=True)
    )


class Broadcast(Step):
    def begin(self):
        place = self.laid_out(self.data(self.own))
        root = self.ranks[self.root]
        work = dist.broadcast(place, root, **self.options())
        return work, lambda: all_equal([place], [self.data(self.root)])


class Reduction(Step):
    def combined(self):
        table = torch.stack(self.all_data())
        # PyTorch has no sum or product within some types: the results of all types fit in these.
        wide = torch.float64 if self.dtype in FLOATS else torch.int64
        return COMBINED[self.op](table.to(wide)).to(self.dtype)


class AllReduce(Reduction):
    def begin(self):
        place = self.laid_out(self.data(self.own))
        work = dist.all_reduce(place, self.op, **self.options())
        return work, lambda: all_equal([place], [self.combined()])


class Reduce(Reduction):
    def begin(self):
        place = self.laid_out(self.data(self.own))
        work = dist.reduce(place, self.ranks[self.root], self.op, **self.options())
        is_root = self.own == self.root
        wanted = self.combined if is_root else lambda: self.data(self.own)
        return work, lambda: all_equal([place], [wanted()])


class ReduceScatter(Reduction):
    def begin(self):
        """Part p of a member's data is what it would contribute as member p after all others."""
        parts = [self.laid_out(self.part(self.own, to)) for to in range(self.size)]
        place = self.empty()
        work = dist.reduce_scatter(place, parts, self.op, **self.options())
        return work, lambda: all_equal([place], [self.combined()])

    def part(self, member, to):
        return self.data(self.size * member + to)

    def all_data(self):
        return [self.part(member, self.own) for member in range(self.size)]


class ReduceScatterTensor(ReduceScatter):
    def begin(self):
        whole = torch.stack([self.part(self.own, to) for to in range(self.size)])
        place = torch.zeros(self.shape, dtype=self.dtype)
        work = dist.reduce_scatter_tensor(place, whole, self.op, **self.options())
        return work, lambda: all_equal([place], [self.combined()])


class AllGather(Step):
    def begin(self):
        places = [self.empty() for _ in range(self.size)]
        work = dist.all_gather(places, self.laid_out(self.data(self.own)), **self.options())
        return work, lambda: all_equal(places, self.all_data())


class AllGatherUnequal(Step):
    def begin(self):
        shapes = [(self.cuts[member], *self.shape) for member in range(self.size)]
        places = [self.empty(shape) for shape in shapes]
        own = self.data(self.own, shapes[self.own])
        work = dist.all_gather(places, own, **self.options())
        wanted = [self.data(member, shape) for member, shape in enumerate(shapes)]
        return work, lambda: all_equal(places, wanted)


class AllGatherTensor(Step):
    def begin(self):
        whole = torch.zeros((self.size, *self.shape), dtype=self.dtype)
        own = self.laid_out(self.data(self.own))
        work = dist.all_gather_into_tensor(whole, own, **self.options())
        return work, lambda: all_equal(list(whole), self.all_data())


class Gather(Step):
    def begin(self):
        is_root = self.own == self.root
        places = [self.empty() for _ in range(self.size)] if is_root else None
        own = self.laid_out(self.data(self.own))
        work = dist.gather(own, places, self.ranks[self.root], **self.options())
        return work, lambda: not is_root or all_equal(places, self.all_data())


class Scatter(Step):
    def begin(self):
        place = self.empty()
        is_root = self.own == self.root
        parts = [self.laid_out(each) for each in self.all_data()] if is_root else None
        work = dist.scatter(place, parts, self.ranks[self.root], **self.options())
        return work, lambda: all_equal([place], [self.data(self.own)])


class AllToAll(Step):
    """With lists; each tensor has its own number of rows."""

    def rows(self, member, to):
        return self.cuts[member * self.size + to]

    def part(self, member, to):
        return self.data(self.size * member + to, (self.rows(member, to), *self.shape))

    def wanted(self):
        return [self.part(member, self.own) for member in range(self.size)]

    def begin(self):
        parts = [self.laid_out(self.part(self.own, to)) for to in range(self.size)]
        places = [self.empty(each.shape) for each in self.wanted()]
        work = dist.all_to_all(places, parts, **self.options())
        return work, lambda: all_equal(places, self.wanted())


class AllToAllTensor(AllToAll):
    """With one tensor, with splits."""

    def begin(self):
        splits = [self.rows(self.own, to) for to in range(self.size)]
        whole = torch.cat([self.part(self.own, to) for to in range(self.size)])
        wanted = torch.cat(self.wanted())
        place = torch.full_like(wanted, 77)
        came = [self.rows(member, self.own) for member in range(self.size)]
        work = dist.all_to_all_single(place, whole, came, splits, **self.options())
        return work, lambda: all_equal([place], [wanted])


class AllToAllEqual(AllToAllTensor):
    """With one tensor, in equal parts."""

    def rows(self, member, to):
        return self.cuts[0]

    def begin(self):
        whole = torch.cat([self.part(self.own, to) for to in range(self.size)])
        wanted = torch.cat(self.wanted())
        place = torch.full_like(wanted, 77)
        work = dist.all_to_all_single(place, whole, **self.options())
        return work, lambda: all_equal([place], [wanted])


class Barrier(Step):
    def begin(self):
        return dist.barrier(**self.options()), lambda: True


class Objects(Step):
    def begin(self):
        things = [None] * self.size
        dist.all_gather_object(things, ("of", self.own, "x" * self.own), group=self.group)
        wanted = [("of", member, "x" * member) for member in range(self.size)]
        return None, lambda: things == wanted


class Messages(Step):
    """Messages around a ring: from each member to the next, and some more the other way."""

    def begin(self):
        up, down = (self.own + 1) % self.size, (self.own - 1) % self.size
        ways = [(up, down, 5), (down, up, 6)][: 1 + self.cuts[0] % 2]
        places, wanted, calls = [], [], []
        for to, source, tag in ways:
            place = self.empty()
            own = self.laid_out(self.data(self.own))
            calls += [(dist.isend, own, to, tag), (dist.irecv, place, source, tag)]
            places.append(place)
            wanted.append(self.data(source))
        self.local.shuffle(calls)
        if self.size == 1:
            return None, lambda: True
        works = [
            call(tensor, self.ranks[peer], group=self.group, tag=tag)
            for call, tensor, peer, tag in calls
        ]
        return Together(works, self.local), lambda: all_equal(places, wanted)


class Together:
    """Several works, waited for in any order."""

    def __init__(self, works, local):
        self.works = works
        local.shuffle(works)

    def wait(self):
        for work in self.works:
            work.wait()


KINDS = [
    Broadcast,
    AllReduce,
    AllReduce,
    Reduce,
    ReduceScatter,
    ReduceScatterTensor,
    AllGather,
    AllGatherUnequal,
    AllGatherTensor,
    Gather,
    Scatter,
    AllToAll,
    AllToAllTensor,
    AllToAllEqual,
    Barrier,
    Objects,
    Messages,
]


class Works:
    """Steps in progress, each with the check of its result."""

    def __init__(self, local):
        self.local, self.open = local, []

    def begin(self, step, rank, what):
        work, is_right = step.run(rank, self.local)
        self.open.append((work, is_right, what))
        if work is None or self.local.random() < 0.4:
            self.end()

    def end(self):
        """Ends any one of the steps."""
        work, is_right, what = self.open.pop(self.local.randrange(len(self.open)))
        if isinstance(work, Together) or self.local.random() < 0.7:
            if work is not None:
                work.wait()
            assert is_right(), what
        elif work is not None:
            ended = work.get_future().then(lambda future: (future.value(), is_right())[1])
            assert ended.wait(), what

    def end_all(self):
        while self.open:
            self.end()


class Program:
    """The steps of a seed."""

    def __init__(self, seed):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.name, self.seed, self.count = f"rank {self.rank} of {self.size} seed {seed}", seed, 0
        self.draw = random.Random(seed)
        self.groups = [(None, list(range(self.size)))]
        self.works = Works(random.Random(f"{seed} of {self.rank}"))

    def run(self, steps):
        while self.count < steps:
            self.change_groups()
            drawn = [self.next_step() for _ in range(self.draw.randint(5, 20))]
            if self.draw.random() < 0.7:
                self.take(drawn, self.works)
            else:
                self.take_in_threads(drawn)
        self.works.end_all()
        while len(self.groups) > 1:
            self.drop(1)

    def next_step(self):
        self.count += 1
        group, ranks = self.draw.choice(self.groups)
        step = self.draw.choice(KINDS)(self.draw, group, ranks)
        what = f"{self.name} step {self.count} {type(step).__name__} {step.dtype} {step.shape}"
        return step, f"{what} {step.op} is_async={step.is_async} among {ranks}"

    def take(self, drawn, works):
        for step, what in drawn:
            if self.rank in step.ranks:
                works.begin(step, self.rank, what)

    def take_in_threads(self, drawn):
        """Runs each group's steps in a thread of its own."""

        def take(number, group):
            works = Works(random.Random(f"{self.seed} of {self.rank} in {number}"))
            self.take([each for each in drawn if each[0].group is group], works)
            works.end_all()

        self.works.end_all()
        with concurrent.futures.ThreadPoolExecutor() as threads:
            started = [
                threads.submit(take, number, group)
                for number, (group, _) in enumerate(self.groups)
            ]
            for thread in started:
                thread.result()

    def change_groups(self):
        """Usually adds or removes a group, on all ranks."""
        if len(self.groups) < 4 and self.draw.random() < 0.6:
            ranks = self.draw.sample(range(self.size), self.draw.randint(1, self.size))
            ranks.sort()
            self.groups.append((dist.new_group(ranks), ranks))
        elif len(self.groups) > 1:
            self.works.end_all()
            self.drop(self.draw.randrange(1, len(self.groups)))

    def drop(self, index):
        group, ranks = self.groups.pop(index)
        if self.rank in ranks:
            dist.destroy_process_group(group)


def main():
    given, defaults = tuple(map(int, sys.argv[1:])), (1, 2, 60)
    seed, seeds, steps = given + defaults[len(given) :]
    dist.init_process_group("omnes")
    for each in range(seed, seed + seeds):
        Program(each).run(steps)
    dist.destroy_process_group()


main()
