"""Processes of a run among each other: what NCCL's stand-in, which answers at once, can't bring from one to another."""

import collections
import contextlib
import os
import pickle
from typing import Any

RANKS_OF_A_NODE = 8  # of a world that is not there


def of_distributed(c10d: Any) -> None:
    """After torch.distributed.distributed_c10d."""
    if os.environ.get("OOMETER_RUN_WORLD"):
        _alone(c10d)
    else:
        _send_objects(c10d)


def _send_objects(c10d: Any) -> None:
    """Objects, such as names and lengths, go through the store, which is real. The collectives run too, for what they allocate."""
    counts: collections.Counter[str] = collections.Counter()
    broadcast, all_gather, gather = c10d.broadcast_object_list, c10d.all_gather_object, c10d.gather_object

    def exchange(group: Any, obj: Any, roots: list[int] | None = None) -> list[Any]:
        """What each root of the group broadcasts; without a root given, every rank is one."""
        group = group or c10d._get_default_group()
        name = str(getattr(group, "group_name", ""))
        counts[name] += 1
        store, rank, key = c10d._get_process_group_store(group), c10d.get_rank(group), f"oometer/{name}/{counts[name]}"
        roots = list(range(c10d.get_world_size(group))) if roots is None else roots
        if rank in roots:
            store.set(f"{key}/{rank}", pickle.dumps(obj))
        return [pickle.loads(store.get(f"{key}/{root}")) for root in roots]

    def broadcast_object_list(objects: list[Any], src: int | None = None, group: Any = None, *given: Any, **named: Any) -> None:
        with contextlib.suppress(Exception):
            broadcast(list(objects), src, group, *given, **named)
        root = c10d.get_group_rank(group or c10d._get_default_group(), src) if src is not None else named.get("group_src") or 0
        objects[:] = exchange(group, list(objects), [root])[0]

    def all_gather_object(objects: list[Any], obj: Any, group: Any = None, **named: Any) -> None:
        with contextlib.suppress(Exception):
            all_gather(list(objects), obj, group, **named)
        objects[:] = exchange(group, obj)

    def gather_object(obj: Any, objects: list[Any] | None = None, dst: int | None = None, group: Any = None, **named: Any) -> None:
        with contextlib.suppress(Exception):
            gather(obj, None if objects is None else list(objects), dst, group, **named)
        found = exchange(group, obj)
        if objects is not None:
            objects[:] = found

    c10d.broadcast_object_list, c10d.all_gather_object, c10d.gather_object = broadcast_object_list, all_gather_object, gather_object


def enter_alone() -> None:
    """One process of a large world: its launcher, if there is one, has set the ranks of a small one."""
    world, rank = int(os.environ["OOMETER_RUN_WORLD"]), int(os.environ.get("OOMETER_RUN_RANK", "0"))
    if os.environ.get("LOCAL_RANK", "0") not in ("0", "-1"):
        os._exit(0)  # another one of the launcher's: rank 0's place is enough
    os.environ |= {"WORLD_SIZE": str(world), "RANK": str(rank), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": str(min(world, RANKS_OF_A_NODE))}
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")


def _alone(c10d: Any) -> None:
    """Groups with NCCL's own process group, so with its buffers, around a store in which whatever is asked for is found."""

    class Lone(c10d.Store):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.values: dict[str, bytes] = {}

        def set(self, key: str, value: Any) -> None:
            self.values[key] = value if isinstance(value, bytes) else str(value).encode()

        def get(self, key: str) -> bytes:
            return self.values.get(key, bytes(128))  # the length of an ncclUniqueId

        def add(self, key: str, amount: int) -> int:
            self.values[key] = str(int(self.values.get(key, b"0")) + amount).encode()
            return int(self.values[key])

        def check(self, keys: list[str]) -> bool:
            return True

        def wait(self, keys: list[str], timeout: Any = None) -> None:
            pass

        def delete_key(self, key: str) -> bool:
            return self.values.pop(key, None) is not None

        def clone(self) -> Any:
            return self

    store = Lone()  # kept: C++ finds its methods as long as the object lives
    init, new_group = c10d.init_process_group, c10d.new_group

    def known(backend: Any) -> Any:
        """Gloo would connect to the others."""
        return "cuda:nccl,cpu:fake" if backend is None else str(backend).replace("gloo", "fake")

    def init_process_group(backend: Any = None, init_method: Any = None, timeout: Any = None, *_: Any, **given: Any) -> None:
        import torch.testing._internal.distributed.fake_pg  # noqa: F401  # registers the backend "fake", which does nothing

        kept = {name: given[name] for name in ("pg_options", "group_name") if name in given}
        world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
        init(known(backend), timeout=timeout, store=store, rank=rank, world_size=world, **kept)

    def new_group_alone(ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **given: Any) -> Any:
        return new_group(ranks, timeout, None if backend is None else known(backend), *args, **given)

    def split_group(parent_pg: Any = None, split_ranks: Any = None, timeout: Any = None, *_: Any, **given: Any) -> Any:
        """Nobody else is there to split a communicator with: a new one."""
        ranks, own = c10d.get_process_group_ranks(parent_pg or c10d._get_default_group()), c10d.get_rank(parent_pg)
        part = next((part for part in split_ranks if own in part), None)
        if part is None:
            return c10d.GroupMember.NON_GROUP_MEMBER
        return new_group([ranks[i] for i in part], timeout, group_desc=given.get("group_desc"))

    c10d.init_process_group, c10d.new_group, c10d.split_group = init_process_group, new_group_alone, split_group
    c10d._get_split_source = lambda *_: None
    c10d._store_based_barrier = lambda *_, **__: None
    c10d.monitored_barrier = lambda *_, **__: None
    c10d.broadcast_object_list = lambda *_, **__: None
    all_gather = c10d.all_gather_object

    def all_gather_object(objects: list[Any], obj: Any, *given: Any, **named: Any) -> None:
        with contextlib.suppress(Exception):
            all_gather(list(objects), obj, *given, **named)
        objects[:] = [obj] * len(objects)

    c10d.all_gather_object = all_gather_object
