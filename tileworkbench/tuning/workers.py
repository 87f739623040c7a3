"""Who measures: what a worker says of itself, and what times hold for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

from tileworkbench.bench.ceilings import machine_key
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.device.host.threads import get_num_threads, set_num_threads
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.target import parse_target


@dataclass(frozen=True, slots=True)
class Worker:
    """What a worker says of itself: the version of this package, and its machine, as the key of
    results and for people.
    """

    version: str
    machine: str
    name: str


def describe_worker(target: str, threads: int | None) -> Worker:
    """This process as a worker."""
    with launching_with(threads):
        key = machine_of(target)
        name = f"{processor.machine_name()}, {get_num_threads()} threads"
    return Worker(version("tileworkbench"), key, name if is_cpu(target) else key)


def is_cpu(target: str) -> bool:
    """Whether launches are on the processor."""
    return target == "auto" or parse_target(target).kind == "cpu"


def machine_of(target: str) -> str:
    """What times on a target hold for: the processor with its threads and caches, or the GPU."""
    if is_cpu(target):
        return machine_key()
    import torch

    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, {torch.version.cuda or torch.version.hip}"
    return "no GPU"


@contextmanager
def launching_with(threads: int | None) -> Iterator[None]:
    """Launch with that many threads, as many as there are cores at most."""
    cores, before = processor.core_count(), get_num_threads()
    set_num_threads(cores if threads is None else min(threads, cores))
    try:
        yield
    finally:
        set_num_threads(before)
