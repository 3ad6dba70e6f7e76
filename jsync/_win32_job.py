"""Processes on Windows that end together with this one, through a job object."""

from __future__ import annotations

import ctypes
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO

_windows: Any = ctypes  # Any, since other systems do not have its Windows functions
_CREATE_SUSPENDED = 0x4
_CREATE_NEW_PROCESS_GROUP = 0x200
_KILL_ON_JOB_CLOSE = 0x2000
_EXTENDED_LIMITS = 9


class _JobLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

    _fields_ = (  # type: ignore[mutable-override]
        ("process_time", ctypes.c_int64),
        ("job_time", ctypes.c_int64),
        ("flags", ctypes.c_uint32),
        ("least_working_set", ctypes.c_size_t),
        ("most_working_set", ctypes.c_size_t),
        ("most_processes", ctypes.c_uint32),
        ("affinity", ctypes.c_size_t),
        ("priority", ctypes.c_uint32),
        ("scheduling", ctypes.c_uint32),
        ("io_counters", ctypes.c_uint64 * 6),
        ("process_memory", ctypes.c_size_t),
        ("job_memory", ctypes.c_size_t),
        ("most_process_memory", ctypes.c_size_t),
        ("most_job_memory", ctypes.c_size_t),
    )


class Win32Job:
    """A process that the system ends when this object, or this process, is gone."""

    def __init__(self, command: Sequence[str], output: IO[bytes]) -> None:
        """Start a process without input, whose output and errors go to a file.

        Ctrl-C in the console does not reach the process.

        Raises:
            OSError: The process or the job cannot be made.
        """
        self._handle = _call("CreateJobObjectW", None, None)
        try:
            limits = _JobLimits(flags=_KILL_ON_JOB_CLOSE)
            _call(
                "SetInformationJobObject",
                *(self._handle, _EXTENDED_LIMITS),
                *(ctypes.byref(limits), ctypes.sizeof(limits)),
            )
            # Start it suspended, so that it cannot outlive this process before it is in
            # the job.
            self.process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                creationflags=_CREATE_NEW_PROCESS_GROUP | _CREATE_SUSPENDED,
            )
            try:
                _call("AssignProcessToJobObject", self._handle, self._process_handle)
                self.resume()
            except BaseException:
                self.process.kill()
                self.process.wait()
                raise
        except BaseException:
            self.close()
            raise

    def suspend(self) -> None:
        """Stop every thread of the process until `resume`."""
        _call("NtSuspendProcess", self._process_handle, of="ntdll")

    def resume(self) -> None:
        """Let the process continue."""
        _call("NtResumeProcess", self._process_handle, of="ntdll")

    def close(self) -> None:
        """Close the job, which ends the process."""
        handle, self._handle = self._handle, 0
        if handle:
            _call("CloseHandle", handle)

    @property
    def _process_handle(self) -> int:
        return int(self.process._handle)  # type: ignore[attr-defined]


def _call(name: str, *args: Any, of: str = "kernel32") -> int:
    """Call a function of the system. Raises `OSError` if it fails.

    Functions of `ntdll` return a negative status then, and all others return 0.
    """
    function = getattr(_windows.WinDLL(of, use_last_error=True), name)
    handle = name.startswith("Create")
    function.restype = ctypes.c_void_p if handle else ctypes.c_int
    result = function(
        *(ctypes.c_void_p(each) if isinstance(each, int) else each for each in args)
    )
    if of == "ntdll":
        if result < 0:
            raise OSError(f"{name} failed: {result & 0xFFFFFFFF:#x}")
    elif not result:
        raise _windows.WinError(_windows.get_last_error())
    return int(result or 0)
