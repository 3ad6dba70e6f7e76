"""Run the jobs of jsync in a process that gevent has patched, where threads are greenlets."""

from gevent import monkey

monkey.patch_all()

from .jobs import main  # noqa: E402
from .use_jsync import JOBS  # noqa: E402

if __name__ == "__main__":
    main(JOBS)
