"""Records every allocation that code running on `meta` tensors would make on a GPU, in order.

A `meta` tensor stands for device memory and a real CPU tensor for host memory. Storages, not tensors, are
followed: views share one, and the storage's finaliser is the free.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trials.tracing.host_memory import LARGE_HOST_ELEMENTS, host_tensor

aten = torch.ops.aten

HOST_STREAM = -1
PINNED_STREAM = -2
MANAGED_STREAM = -3


class Recorder:
    """The event log, and where in the run it is.

    An event is one entry in each of four parallel lists. A positive `ids` entry allocates that block, a
    negative one frees it; zero is a marker whose meaning is in `sizes` (an index into `markers`).

    Attributes:
        stream: the CUDA stream allocations belong to; 0 is the default stream.
        category: what is being allocated, an index into `categories`.
    """

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.sizes: list[int] = []
        self.streams: list[int] = []
        self.kinds: list[int] = []
        self.origins: list[int] = []
        self.handed: list[int] = []
        self.markers: list[str] = []
        self.categories: list[str] = []
        self._category_index: dict[str, int] = {}
        self.stream = 0
        self.category = self.category_index("other")
        self.in_backward = False
        self.in_model = False
        self.engine_category = -1
        self._next = 1
        self._live: dict[int, tuple[weakref.ref[Any], int, int]] = {}
        self._event_of: dict[int, int] = {}
        self._workspaces: set[tuple[str, int]] = set()
        self.paused = 0
        self.label: Callable[[int], int] | None = None
        self.mode: RecordingMode | None = None

    def category_index(self, name: str) -> int:
        """The index of a category, made on first use."""
        index = self._category_index.get(name)
        if index is None:
            index = self._category_index[name] = len(self.categories)
            self.categories.append(name)
        return index

    @contextmanager
    def labelled(self, name: str) -> Iterator[None]:
        """Allocations inside are of this category."""
        before, self.category = self.category, self.category_index(name)
        try:
            yield
        finally:
            self.category = before

    @contextmanager
    def on_stream(self, stream: int) -> Iterator[None]:
        """Allocations inside belong to this stream."""
        before, self.stream = self.stream, stream
        try:
            yield
        finally:
            self.stream = before

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Inside a handler, where recording is off: what runs in here is recorded."""
        assert self.mode is not None
        with self.mode:
            yield

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Inside, `meta` means what it says: a shape without memory."""
        self.paused += 1
        try:
            yield
        finally:
            self.paused -= 1

    def mark(self, name: str) -> None:
        """Put a named marker into the log."""
        self.ids.append(0)
        self.sizes.append(len(self.markers))
        self.streams.append(0)
        self.kinds.append(0)
        self.origins.append(0)
        self.markers.append(name)

    def allocate(self, size_bytes: int, *, stream: int | None = None, category: int | None = None) -> int:
        """Log an allocation without a tensor; returns the block's id for `free`."""
        ident = self._next
        self._next += 1
        self._event_of[ident] = len(self.ids)
        self.ids.append(ident)
        self.sizes.append(size_bytes)
        self.streams.append(self.stream if stream is None else stream)
        model_runs = self.in_model
        if category is None:
            category = self.label(size_bytes) if self.label is not None else self.category
        self.kinds.append(category)
        self.origins.append(int(model_runs and category != self.engine_category))
        return ident

    def free(self, ident: int) -> None:
        """Log the release of a block."""
        self.ids.append(-ident)
        self.sizes.append(0)
        self.streams.append(0)
        self.kinds.append(0)
        self.origins.append(0)

    @contextmanager
    def scratch(self, *sizes_bytes: int, category: str = "kernel scratch") -> Iterator[None]:
        """Blocks that live only inside, as a kernel's temporaries do."""
        kind = self.category_index(category)
        idents = [self.allocate(size, category=kind) for size in sizes_bytes if size > 0]
        try:
            yield
        finally:
            for ident in reversed(idents):
                self.free(ident)

    def workspace(self, library: str, size_bytes: int) -> None:
        """A library's workspace of the calling thread: allocated once, never freed."""
        key = (library, int(self.in_backward))
        if key not in self._workspaces:
            self._workspaces.add(key)
            self.allocate(size_bytes, stream=0, category=self.category_index("workspaces"))

    def forget_workspaces(self) -> None:
        """From here on each library takes its workspaces anew."""
        self._workspaces.clear()

    def track(self, tensor: torch.Tensor, *, stream: int | None = None) -> None:
        """Log the allocation of a tensor's storage, if it is new; its end is logged by itself."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._live:
            return
        nbytes = storage.nbytes()
        if nbytes == 0:
            return
        self._follow(storage, key, self.allocate(nbytes, stream=stream), nbytes)

    def see(self, tensor: torch.Tensor) -> None:
        """Log what an operation gave: whatever is on the device, and what is large on the host."""
        if tensor.is_meta:
            if tensor.untyped_storage()._cdata not in self._live:
                self.track(tensor)
        elif tensor.numel() > LARGE_HOST_ELEMENTS:
            self.track(tensor, stream=HOST_STREAM)

    def place(self, tensor: torch.Tensor, stream: int) -> None:
        """Say that a host tensor is pinned, or managed, memory."""
        self.track(tensor, stream=stream)
        entry = self._live.get(tensor.untyped_storage()._cdata)
        if entry is not None:
            self.streams[self._event_of[entry[1]]] = stream

    def _follow(self, storage: Any, key: int, ident: int, nbytes: int) -> None:
        live, ids, sizes, streams = self._live, self.ids, self.sizes, self.streams
        kinds, origins = self.kinds, self.origins

        def ended(_: Any) -> None:
            live.pop(key, None)
            ids.append(-ident)
            sizes.append(0)
            streams.append(0)
            kinds.append(0)
            origins.append(0)

        live[key] = (weakref.ref(storage, ended), ident, nbytes)

    def forget(self, tensor: torch.Tensor) -> None:
        """Stop following a storage, as if it had never been allocated on the device."""
        entry = self._live.pop(tensor.untyped_storage()._cdata, None)
        if entry is not None:
            self.free(entry[1])

    def relabel(self, tensor: torch.Tensor, name: str) -> None:
        """Say what a tensor's storage is, after the fact."""
        entry = self._live.get(tensor.untyped_storage()._cdata)
        if entry is not None:
            self.kinds[self._event_of[entry[1]]] = self.category_index(name)

    def hand_over(self, tensor: torch.Tensor, index: int) -> None:
        """A gradient arrives at its parameter: from here on DeepSpeed decides how long it lives."""
        entry = self._live.get(tensor.untyped_storage()._cdata)
        self.mark(f"grad {index}")
        self.handed.append(entry[1] if entry is not None else 0)

    def is_live(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's storage is in the log."""
        return tensor.untyped_storage()._cdata in self._live


def _tensors(args: Any) -> Iterator[torch.Tensor]:
    for arg in args:
        if isinstance(arg, torch.Tensor):
            yield arg
        elif isinstance(arg, list | tuple):
            for item in arg:
                if isinstance(item, torch.Tensor):
                    yield item


def _all_on_meta(args: Any) -> bool:
    """Whether there are tensors among the arguments, all on the device."""
    found = False
    for arg in args:
        if isinstance(arg, torch.Tensor):
            if not arg.is_meta:
                return False
            found = True
        elif isinstance(arg, list | tuple):
            for item in arg:
                if isinstance(item, torch.Tensor):
                    if not item.is_meta:
                        return False
                    found = True
    return found


Handler = Callable[[Recorder, Any, tuple[Any, ...], dict[str, Any]], Any]


class RecordingMode(TorchDispatchMode):  # type: ignore[misc]
    """Runs operations on meta and host tensors and logs the storages that come out."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing is compiled here; the guard would cost as much as many an operation.
        return False

    def __init__(self, recorder: Recorder, handlers: dict[Any, Handler]) -> None:
        super().__init__()
        self.recorder = recorder
        recorder.mode = self
        self.handlers = handlers
        self._schema: dict[Any, tuple[bool, bool]] = {}

    def _kind(self, func: Any) -> tuple[bool, bool]:
        """(writes its first argument, returns a view)."""
        kind = self._schema.get(func)
        if kind is None:
            arguments = func._schema.arguments
            first = arguments[0].alias_info if arguments else None
            writes = first is not None and first.is_write
            returns = func._schema.returns
            view = bool(returns) and returns[0].alias_info is not None and not returns[0].alias_info.is_write
            kind = self._schema[func] = (writes, view)
        return kind

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        recorder = self.recorder
        handler = self.handlers.get(func)
        out = NotImplemented
        if handler is not None:
            out = handler(recorder, func, args, kwargs)
        if out is NotImplemented:
            plain = not kwargs and _all_on_meta(args)
            out = func(*args) if plain else self._run(func, args, kwargs)
        if recorder.paused:
            return out
        if isinstance(out, torch.Tensor):
            recorder.see(out)
        elif isinstance(out, list | tuple):
            for item in out:
                if isinstance(item, torch.Tensor):
                    recorder.see(item)
        return out

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        device = kwargs.get("device")
        on_meta = on_host = False
        large = 0
        for tensor in _tensors(args):
            if tensor.is_meta:
                on_meta = True
            else:
                on_host = True
                large = max(large, tensor.numel())
        if device is not None and torch.device(device).type == "cuda":
            kwargs = {**kwargs, "device": "meta"}
            device = "meta"
        target = torch.device(device).type if device is not None else None
        if target == "cpu" and not on_meta and not on_host:
            return self._host_factory(func, args, kwargs)
        if func is aten.copy_.default and on_host and (on_meta or large > LARGE_HOST_ELEMENTS):
            # A copy between the device and the host, or between two areas that hold nothing.
            if on_meta:
                self._convert_on_the_way(args, kwargs)
            return args[0]
        if target is not None and (on_meta or on_host) and (target == "cpu") != on_host:
            return self._cross(func, args, kwargs, target)
        if on_host and (large > LARGE_HOST_ELEMENTS or kwargs.get("pin_memory")):
            return self._host_op(func, args, kwargs)
        if on_meta and kwargs.get("pin_memory"):
            kwargs = {k: v for k, v in kwargs.items() if k != "pin_memory"}
        return func(*args, **kwargs)

    def _convert_on_the_way(self, args: Any, kwargs: Any) -> None:
        """The temporary of a copy between devices that changes the precision (`copy_kernel_cuda`).

        It is converted on the GPU if the copy does not block, else on the host, before or after the transfer.
        """
        target, source = args[0], args[1]
        if target.dtype == source.dtype:
            return
        non_blocking = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
        converting = "meta" if non_blocking else "cpu"
        dtype = target.dtype if source.device.type == converting else source.dtype
        recorder = self.recorder
        stream = recorder.stream if converting == "meta" else HOST_STREAM
        with recorder.on_stream(stream), recorder.scratch(target.numel() * dtype.itemsize):
            pass

    def _host_factory(self, func: Any, args: Any, kwargs: Any) -> Any:
        meta = func(*args, **{**kwargs, "device": "meta", "pin_memory": False})
        if meta.numel() <= LARGE_HOST_ELEMENTS:
            return func(*args, **{**kwargs, "pin_memory": False})
        out = host_tensor(meta.shape, meta.dtype)
        if kwargs.get("pin_memory"):
            self.recorder.place(out, PINNED_STREAM)
        return out

    def _cross(self, func: Any, args: Any, kwargs: Any, target: str) -> Any:
        """An operation that makes a tensor on the other side: its data do not matter, its shape does."""
        shadow = func(
            *self._to_meta(args),
            **{**kwargs, "device": "meta", "pin_memory": False}
            if "pin_memory" in kwargs
            else {**kwargs, "device": "meta"},
        )
        if target == "meta":
            return shadow
        return host_tensor(shadow.shape, shadow.dtype)

    def _host_op(self, func: Any, args: Any, kwargs: Any) -> Any:
        writes, view = self._kind(func)
        if writes:
            return args[0]
        if view:
            return func(*args, **kwargs)
        kwargs = {k: v for k, v in kwargs.items() if k != "pin_memory"}
        shadow = func(
            *self._to_meta(args), **({**kwargs, "device": "meta"} if "device" in kwargs else kwargs)
        )
        if shadow is None:
            return None
        if isinstance(shadow, torch.Tensor):
            return host_tensor(shadow.shape, shadow.dtype)
        return type(shadow)(
            host_tensor(t.shape, t.dtype) if isinstance(t, torch.Tensor) else t for t in shadow
        )

    def _to_meta(self, args: Any) -> list[Any]:
        def convert(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and value.device.type == "cpu":
                return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
            if isinstance(value, list | tuple):
                return type(value)(convert(item) for item in value)
            return value

        return [convert(value) for value in args]
