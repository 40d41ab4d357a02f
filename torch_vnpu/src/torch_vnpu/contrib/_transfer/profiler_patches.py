"""`ProfilerActivity.CUDA` asks for the activities of npu."""

from typing import Any

from torch.profiler import ProfilerActivity, profiler

from torch_vnpu.contrib._transfer import ORIGIN, SWITCHED_ON, manager

_parse = profiler._parse_activities


@manager.patch(
    "torch.profiler.profiler._parse_activities",
    id="profiler-activity",
    group="profiler",
    title="ProfilerActivity.CUDA is npu's",
    reason="A program for CUDA asks the profiler for CUDA's activities.",
    origin=ORIGIN,
    remove_when=SWITCHED_ON,
)
def parse_activities(activities: Any) -> Any:
    return _parse(
        [{_on_npu(key): item[key] for key in item} if isinstance(item, dict) else _on_npu(item) for item in activities]
    )


def _on_npu(activity: Any) -> Any:
    return ProfilerActivity.PrivateUse1 if activity == ProfilerActivity.CUDA else activity
