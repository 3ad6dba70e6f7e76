"""The tasks of the stages that run now, for the progress line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext


def running_tasks(context: SparkContext, group: str | None = None) -> str:
    """Return `3 of 8 tasks`, or an empty text if no stage runs.

    Args:
        context: The context of the session.
        group: Only the jobs of this group. Default: all.
    """
    tracker = context.statusTracker()
    stages = set(tracker.getActiveStageIds())
    if group is not None:
        jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(group))
        stages &= {stage for job in jobs if job is not None for stage in job.stageIds}
    infos = [tracker.getStageInfo(stage) for stage in stages]
    found = [info for info in infos if info is not None]
    if not found:
        return ""
    done = sum(info.numCompletedTasks for info in found)
    return f"{done} of {sum(info.numTasks for info in found)} tasks"
