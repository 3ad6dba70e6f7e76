# Finalizers. Python prints an exception of a `__del__` and drops it, so a Ctrl-C that hits
# one would be lost. It is therefore raised again at the end of the finalizer, where no
# bytecode runs any more that could notice it.

cdef extern from "Python.h":
    void PyErr_SetInterrupt() nogil


def safe_finalizer(method: "Callable[[Any], None]") -> "Callable[[Any], None]":
    """Make a `__del__` that does nothing once Python is ending, and loses no Ctrl-C.

    At that time connections are closed, and no other thread runs. A Python without the GIL
    drops the last objects after the names of modules, which the method would need.

    If a signal handler raises KeyboardInterrupt, `method` begins again, and the exception
    reaches the code that dropped the object.
    """
    import sys
    ending = sys.is_finalizing

    def finalize(self) -> None:
        cdef bint interrupted = False
        while not ending():
            try:
                method(self)
                break
            except KeyboardInterrupt:
                if PyThread_get_thread_ident() != main_thread:
                    raise
                interrupted = True
        if interrupted:
            PyErr_SetInterrupt()

    finalize.__doc__ = method.__doc__
    return finalize


# Python handles signals at the first instruction of a function, which no `try` in it
# covers. A function in C handles none, so these two are here.

def enter_self(self):
    """Return `self`, as an `__enter__` that Ctrl-C cannot interrupt."""
    return self


def ends_by(end: "Callable[[Any], object]") -> "Callable[[Any], Any]":
    """Have an interrupted method end its object by `end`, as a decorator of the method.

    `end` does not block. It begins again if Ctrl-C interrupts it, too.
    """
    def decorate(method):
        def call(self, *args):
            try:
                return method(self, *args)
            except Exception:
                raise
            except BaseException:
                while True:
                    try:
                        end(self)
                        break
                    except KeyboardInterrupt:
                        if PyThread_get_thread_ident() != main_thread:
                            raise
                raise

        call.__doc__ = method.__doc__
        return call

    return decorate
