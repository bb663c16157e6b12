"""What a prediction says."""

from __future__ import annotations

from pydantic import Field

from autotune.prediction.allocator import LARGE_SEGMENT_BYTES
from autotune.prediction.events import Events
from autotune.prediction.figures import Figures, figures_of
from autotune.prediction.hardware import Hardware, outside_allocator_bytes
from autotune.prediction.host import host_peak_bytes
from autotune.prediction.replay import replay, smallest_cap
from trials.wire import Phase, Point, Strict

# Without a replay: how far the smallest cap lies above what is allocated, at most, in the measured cases.
UNREPLAYED_MARGIN = 1.01
# No machine has so much, and the allocator's model has no addresses for it.
MOST_REPLAYED_BYTES = 1 << 44


class Prediction(Strict):
    """The memory of one configuration, for one process. Sizes in bytes."""

    peak_allocated_bytes: int = Field(description="largest over the training steps")
    setup_peak_allocated_bytes: int = Field(description="largest over load and start")
    phase_peak_allocated_bytes: dict[str, int] = Field(
        description="by phase; first_step and later_step are whole optimizer steps, as a trial reports them"
    )
    peak_reserved_bytes: int = Field(description="what the allocator reserves when it may")
    required_device_bytes: int = Field(description="smallest budget under which it trains")
    confirmed_required_device_bytes: int = Field(
        description="smallest budget under which it trains, evaluates and saves, as a winner has to"
    )
    device_bytes: int = Field(description="what NVML shows when it may reserve what it likes")
    outside_allocator_bytes: int
    host_peak_bytes: int
    breakdown: dict[str, int] = Field(
        description="what is allocated at the peak; sums to peak_allocated_bytes"
    )
    phase: str = Field(description="where the peak is: forward, backward, first_step, later_step")
    trainable_parameters: int
    total_parameters: int
    exact: bool = Field(description="whether the allocator was replayed and the trace is this point's own")
    estimated: bool = Field(
        default=False, description="whether even what is allocated is only right to a few percent"
    )
    notes: tuple[str, ...] = ()


class PredictionFailure(Strict):
    """A point that cannot be predicted, and why."""

    error: str


def prediction_of(
    events: Events,
    point: Point,
    hardware: Hardware,
    *,
    outside_bytes: int | None = None,
    figures: Figures | None = None,
    estimated: bool = False,
) -> Prediction:
    """The prediction that follows from a point's trace.

    Args:
        events: the point's own trace; with `figures` its engine's part.
        point: the configuration.
        hardware: the GPU.
        outside_bytes: what a process holds outside the allocator; None for the shipped figure.
        figures: the point's peaks, where they come from shared traces: the allocator is not replayed then.
        estimated: whether these peaks were taken from a neighbour's.
    """
    exact = figures is None
    figures = figures or figures_of(events)
    phases = figures.phases
    notes = []
    if outside_bytes is None:
        outside_bytes = outside_allocator_bytes(hardware, point)
        known = "measured on an H200" if hardware.capability[0] == 9 else "scaled from an H200's"
        notes.append(f"memory outside the allocator is the shipped figure, {known}")
    if point.offload.startswith("nvme_"):
        notes.append("NVMe offload is predicted as CPU offload: its host memory is an upper bound")
    if events.managed_bytes:
        notes.append(
            f"{events.managed_bytes} bytes of paged optimizer state move between host and device and are not "
            "counted"
        )
    afterwards = {str(Phase.EVALUATION), str(Phase.SAVING)}
    exact = exact and max(phases.values()) <= MOST_REPLAYED_BYTES
    if exact:
        training = events.training
        reserved = replay(training).peak_reserved_bytes
        cap = smallest_cap(training, reserved)
    else:
        cap = reserved = _pages(max(peak for name, peak in phases.items() if name not in afterwards))
    confirmed = max([cap, *(_pages(phases[name]) for name in afterwards if name in phases)])
    return Prediction(
        peak_allocated_bytes=figures.peak,
        setup_peak_allocated_bytes=max(phases[Phase.LOAD], phases[Phase.START]),
        phase_peak_allocated_bytes=phases,
        peak_reserved_bytes=reserved,
        required_device_bytes=cap + outside_bytes,
        confirmed_required_device_bytes=confirmed + outside_bytes,
        device_bytes=reserved + outside_bytes,
        outside_allocator_bytes=outside_bytes,
        host_peak_bytes=host_peak_bytes(events, point),
        breakdown=figures.breakdown,
        phase=figures.phase,
        trainable_parameters=events.trainable_parameters,
        total_parameters=events.total_parameters,
        exact=exact,
        estimated=estimated,
        notes=tuple(notes),
    )


def _pages(peak_bytes: int) -> int:
    page = LARGE_SEGMENT_BYTES
    return -(-int(peak_bytes * UNREPLAYED_MARGIN) // page) * page
