"""The process groups `hccl` and `lccl`: Gloo moves the bytes of npu tensors, without a copy on either side.

A collective first waits, on the host, for the current streams of its tensors; from then on Gloo works on a thread of its own.
What is launched after `work.wait()` has returned, on whatever stream, sees the result. Tensors on CPU go to Gloo directly.
"""

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from torch_vnpu.distributed import told
from torch_vnpu.distributed.host_alias import host_alias, wait_for_writers

__all__ = ["HostProcessGroup", "HostWork"]


class HostWork(dist._Work):
    """A collective under way. `outputs` are the tensors that it writes."""

    def __init__(self, work: Any, outputs: list[torch.Tensor], after: Callable[[], object] | None = None) -> None:
        super().__init__()
        self._work = work
        self._outputs = outputs
        self._after = after
        self._lock = threading.Lock()
        self._told: list[torch.Stream] = []
        self._future: torch.futures.Future[list[torch.Tensor]] | None = None

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Return when the result is there.

        Raises:
            RuntimeError: it failed, or did not end within `timeout` (0: the group's).
        """
        done = self._work.wait(timeout) if timeout else self._work.wait()
        self._finish()
        return bool(done)

    def _finish(self) -> None:
        with self._lock:  # whoever comes second returns when it is done
            after, self._after = self._after, None
            ended, self._told = self._told, []
            told.end(ended)
            if after is not None:
                after()

    def is_completed(self) -> bool:
        """Whether it has ended, well or not."""
        return bool(self._work.is_completed())

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return bool(self._work.is_success())

    def exception(self) -> Any:
        """What it raised, or None."""
        return self._work.exception()

    def source_rank(self) -> int:
        """Who sent what was received from any rank."""
        return int(self._work._source_rank())

    _source_rank = source_rank

    def synchronize(self) -> None:
        """As `wait`."""
        self.wait()

    def result(self) -> list[torch.Tensor]:
        """The tensors that were written."""
        return self._outputs

    def get_future(self) -> Any:
        """A future of the tensors that are written; DistributedDataParallel's communication hooks chain on it."""
        if self._future is None:
            devices = {tensor.device for tensor in self._outputs if tensor.device.type == "npu"}
            future: Any = torch.futures.Future(devices=sorted(devices, key=lambda device: device.index))
            self._future = future

            def done(ended: Any) -> None:
                try:
                    ended.value()
                    self._finish()
                    wait_for_writers(self._outputs)  # on Gloo's thread, whose streams are not those of who asked
                except Exception as error:
                    future.set_exception(error)
                else:
                    future.set_result(self._outputs)

            self._work.get_future().add_done_callback(done)
        return self._future


class _AllOf:
    """Several collectives under way, with the face that `HostWork` needs of one."""

    def __init__(self, works: list[HostWork]) -> None:
        self._works = works

    def wait(self, *timeout: timedelta) -> bool:
        ended = [work.wait(*timeout) for work in self._works]
        return all(ended)

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    def exception(self) -> Any:
        return next((error for work in self._works if (error := work.exception()) is not None), None)

    def get_future(self) -> Any:
        return torch.futures.collect_all([work.get_future() for work in self._works])


class HostProcessGroup(dist.ProcessGroup):
    """A process group whose tensors are on npu (or on CPU), over Gloo.

    Args:
        backend: the name that the group goes by, `hccl` or `lccl`.
        store, rank, world_size, timeout: as of every process group.
    """

    def __init__(self, backend: str, store: dist.Store, rank: int, world_size: int, timeout: timedelta) -> None:
        super().__init__(rank, world_size)
        self._backend = backend
        self.process = os.getpid()
        self._gloo = dist.ProcessGroupGloo(store, rank, world_size, timeout)
        self._gloo._set_sequence_number_for_group()
        for device in ("cpu", "npu"):  # what torch asks for its devices, and for its objects' device
            self._register_backend(torch.device(device), dist.ProcessGroup.BackendType.CUSTOM, self._gloo)
        self._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        self._coalesced: list[HostWork] | None = None

    def getBackendName(self) -> str:  # noqa: N802 (torch's name)
        return self._backend

    def _start(self, method: Callable[..., Any], outputs: Any, inputs: Any, *rest: Any) -> HostWork:
        wait_for_writers([outputs, inputs])
        given = [_aliases(value) for value in (outputs, inputs) if value is not None]
        work = HostWork(method(*given, *rest), _flat(outputs))
        work._told = told.start(method.__name__.strip("_"), _flat(outputs), _flat(inputs))
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _start_coalescing(self, device: torch.device) -> None:
        """From here to `_end_coalescing` the collectives count as one. They start at once all the same."""
        self._coalesced = []

    def _end_coalescing(self, device: torch.device) -> HostWork:
        works, self._coalesced = self._coalesced or [], None
        return HostWork(_AllOf(works), [tensor for work in works for tensor in work.result()])

    def _start_reduction(self, method: Callable[..., Any], outputs: Any, inputs: Any, opts: Any) -> HostWork:
        """`_start`; Gloo has no average, but a sum that is divided when it is there is one."""
        average = opts.reduceOp == dist.ReduceOp.AVG
        if average:
            opts.reduceOp = dist.ReduceOp.SUM
        try:
            work = self._start(method, outputs, inputs, opts)
        finally:
            if average:
                opts.reduceOp = dist.ReduceOp.AVG  # the options are the caller's
        if average:
            work._after = lambda: [tensor.div_(self.size()) for tensor in work._outputs]
        return work

    def allreduce(self, tensors: Any, opts: Any = None) -> HostWork:
        return self._start_reduction(self._gloo.allreduce, tensors, None, _options(dist.AllreduceOptions, opts))

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> HostWork:
        return self._start(self._gloo.allreduce_coalesced, tensors, None, *_given(opts))

    def broadcast(self, tensors: Any, opts: Any = None) -> HostWork:
        return self._start(self._gloo.broadcast, tensors, None, *_given(opts))

    def reduce(self, tensors: Any, opts: Any = None) -> HostWork:
        return self._start(self._gloo.reduce, tensors, None, *_given(opts))

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> HostWork:
        return self._start(self._gloo.allgather, outputs, inputs, *_given(opts))

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> HostWork:
        return self._start(self._gloo.allgather_coalesced, outputs, inputs, *_given(opts))

    def all_gather_single(self, output: Any, input: Any, opts: Any = None) -> HostWork:
        return self._start(self._gloo._allgather_base, output, input, *_given(opts))

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> HostWork:
        return self._start(self._gloo.gather, outputs, inputs, *_given(opts))

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> HostWork:
        return self._start(self._gloo.scatter, outputs, inputs, *_given(opts))

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> HostWork:
        options = _options(dist.ReduceScatterOptions, opts)
        return self._start_reduction(self._gloo.reduce_scatter, outputs, inputs, options)

    def reduce_scatter_single(self, output: Any, input: Any, opts: Any = None) -> HostWork:
        options = _options(dist.ReduceScatterOptions, opts)
        return self._start_reduction(self._gloo._reduce_scatter_base, output, input, options)

    def all_to_all_single(
        self, output: Any, input: Any, output_splits: Any = None, input_splits: Any = None, opts: Any = None
    ) -> HostWork:
        splits = (list(output_splits or []), list(input_splits or []))
        return self._start(self._gloo.alltoall_base, output, input, *splits, *_given(opts))

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> HostWork:
        """Gloo has it for one tensor that is split, so the lists become one."""
        if len({tensor.dtype for tensor in [*outputs, *inputs]}) > 1:
            raise RuntimeError(f"{self._backend}: the tensors of an all_to_all must have one dtype")
        received = outputs[0].new_empty(sum(tensor.numel() for tensor in outputs))
        sent = torch.cat([tensor.reshape(-1) for tensor in inputs])
        splits = [[tensor.numel() for tensor in tensors] for tensors in (outputs, inputs)]
        work = self._start(self._gloo.alltoall_base, received, sent, *splits, *_given(opts))
        work._outputs = list(outputs)

        def spread() -> None:
            for tensor, part in zip(outputs, received.split(splits[0]), strict=True):
                tensor.copy_(part.view(tensor.shape))

        work._after = spread
        return work

    def send(self, tensors: Any, destination: int, tag: int = 0) -> HostWork:
        return self._start(self._gloo.send, tensors, None, destination, tag)

    def recv(self, tensors: Any, source: int, tag: int = 0) -> HostWork:
        return self._start(self._gloo.recv, tensors, None, source, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> HostWork:
        return self._start(self._gloo.recv_anysource, tensors, None, tag)

    def barrier(self, opts: Any = None) -> HostWork:
        """Waits for the current device too: what was queued before it has run when it returns."""
        if torch.npu.is_initialized():
            torch.npu.synchronize()
        return HostWork(self._gloo.barrier(), [])

    # Names that torch used before 2.13, which callers of a group still use.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single


def _options(kind: Any, opts: Any) -> Any:
    """`opts`, which may be options, the reduction alone, or nothing."""
    if isinstance(opts, kind):
        return opts
    made = kind()
    if opts is not None:
        made.reduceOp = opts
    return made


def _given(opts: Any) -> tuple[Any, ...]:
    return () if opts is None else (opts,)


def _aliases(value: Any) -> Any:
    return host_alias(value) if isinstance(value, torch.Tensor) else [_aliases(element) for element in value]


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for element in value or [] for tensor in _flat(element)]
