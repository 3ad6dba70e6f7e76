"""The unit tests that only some Pythons collect."""

import sysconfig

collect_ignore = (
    [] if sysconfig.get_config_var("Py_GIL_DISABLED") else ["test_free_threading.py"]
)
