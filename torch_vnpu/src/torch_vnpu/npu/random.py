"""Random numbers: one generator a device. Generators can be seeded before the runtime starts, which that does not do."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from torch_vnpu import _C
from torch_vnpu.npu import _lazy
from torch_vnpu.npu.device import DeviceLike, device_count, device_index


class _DefaultGenerators:
    """The generators of all devices, in order; a sequence that always has as many entries as there are devices."""

    def __len__(self) -> int:
        return device_count()

    def __getitem__(self, index: int) -> torch.Generator:
        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no device {index}, there are {len(self)}")
        return _C.default_generator(index % len(self))

    def __iter__(self) -> Iterator[torch.Generator]:
        return (self[index] for index in range(len(self)))


default_generators = _DefaultGenerators()


def _generator(device: DeviceLike) -> torch.Generator:
    _lazy.init()
    return default_generators[device_index(device)]


def manual_seed(seed: int) -> None:
    """Seed the current device's generator."""
    default_generators[_C.current_device()].manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices with the same number, however many there will be. `torch.manual_seed` calls this."""
    _C.manual_seed_all(int(seed))


def seed() -> int:
    """Seed the current device's generator with a random number, which is returned."""
    return _generator(None).seed()


def seed_all() -> None:
    """Seed the generators of all devices with one random number."""
    manual_seed_all(seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return _generator(None).initial_seed()


def get_rng_state(device: DeviceLike = "npu") -> Tensor:
    """The state of `device`'s generator: a uint8 tensor on CPU."""
    return _generator(device).get_state()


def get_rng_state_all() -> list[Tensor]:
    """The states of all generators, in the order of the devices."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state: Tensor, device: DeviceLike = "npu") -> None:
    """Put `device`'s generator into a state that `get_rng_state` gave."""
    default_generators[device_index(device)].set_state(new_state)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Put the generators of the devices into these states, in order."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
