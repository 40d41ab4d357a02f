"""The runtime below torch: what `torch.npu.npurt()` returns, with the names that a vendor's runtime would have.

Addresses and handles are numbers. A function returns an `npuError`, which is an int, and `npuError.success` is 0; only
`npuMemGetInfo`, which returns figures, raises.
"""

from enum import IntEnum

from torch_vnpu import _C

__all__ = [
    "NpuError",
    "check_error",
    "npuError",
    "npuGetErrorString",
    "npuHostRegister",
    "npuHostUnregister",
    "npuMemGetInfo",
    "npuStreamCreate",
    "npuStreamDestroy",
]


class npuError(IntEnum):  # noqa: N801  (the runtime's own spelling)
    """What a function of the runtime returns; the numbers of `vnpuError_t`."""

    success = 0
    invalid_value = 1
    invalid_device = 2
    out_of_memory = 3
    invalid_handle = 4
    not_ready = 5
    bad_fork = 6
    bad_environment = 7
    closed = 8
    launch_failed = 9
    already_registered = 10
    not_registered = 11


class NpuError(RuntimeError):
    """A function of the runtime failed; `code` says how."""

    def __init__(self, code: int) -> None:
        super().__init__(f"npu: {npuGetErrorString(code)} (error {int(code)})")
        self.code = code


def check_error(res: int) -> None:
    """Raise `NpuError` unless `res`, which a function of the runtime returned, is 0."""
    if res != npuError.success:
        raise NpuError(res)


def npuGetErrorString(code: int) -> str:  # noqa: N802
    """What an error code means, in words; "unknown error" for a number that is none."""
    return _C.error_string(code)


def npuHostRegister(ptr: int, size: int, flags: int = 0) -> npuError:  # noqa: N802
    """Pin `size` bytes from the address `ptr` on, which the caller owns: tensors whose storage starts in them are pinned.

    The memory must outlive its registration. The flags 1 (portable) and 2 (mapped) are taken and change nothing.

    Returns:
        `invalid_value` for a null pointer, no bytes or another flag; `already_registered` where a byte of it is pinned.
    """
    return npuError(_C.host_register(ptr, size, flags))


def npuHostUnregister(ptr: int) -> npuError:  # noqa: N802
    """Let go of the range that was registered at `ptr`. Synchronise first where copies from or to it may be under way.

    Returns:
        `invalid_value` for a null pointer; `not_registered` where no registered range starts.
    """
    return npuError(_C.host_unregister(ptr))


def npuStreamCreate(addr: int) -> npuError:  # noqa: N802
    """Make a stream of the current device and write its handle, a pointer, to the address `addr`.

    `torch.npu.ExternalStream(handle)` is the stream for torch.

    Returns:
        `invalid_value` for a null address.
    """
    return npuError(_C.stream_create(addr))


def npuStreamDestroy(handle: int) -> npuError:  # noqa: N802
    """End a stream: what it was given still runs, and later uses of it fail. Handles are never given out again.

    Returns:
        `invalid_handle` for anything but a live stream that was created: a stream that was destroyed, the default stream,
        or any other number.
    """
    return npuError(_C.stream_destroy(handle))


def npuMemGetInfo(device: int) -> tuple[int, int]:  # noqa: N802
    """Bytes free and bytes in all on the device, at this moment: work that is queued is not waited for.

    Raises:
        NpuError: there is no such device.
    """
    error, free, total = _C.mem_get_info(device)
    check_error(error)
    return free, total
