"""Interrupts of commands, also while compiled code runs."""

import os
import signal
import subprocess
import sys
import time

import pytest

# The loop of compiled code does not return to Python; it releases the lock of the interpreter, like the kernels.
BUSY = """
import sys, numba
from limiirl.cli import interruptible

@numba.njit(nogil=True)
def spin(n):
    total = 0.0
    for i in range(n):
        total += 1.0 / (i + total + 1.0)
    return total

spin(1)
with interruptible():
    print("ready", flush=True)
    {work}
"""


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("work", "code"),
    [("spin(10**13)", 130), ("import time; time.sleep(600)", -signal.SIGINT)],
    ids=["kernel", "python"],
)
def test_an_interrupt_ends_the_process(work, code):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", BUSY.format(work=work)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout.readline() == b"ready\n"
        time.sleep(1.0)  # until the loop has begun
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=30)
    assert process.returncode == code
    assert (b"KeyboardInterrupt" in message) == (code != 130)


def test_the_handler_is_restored():
    from limiirl.cli import interruptible

    with interruptible():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.set_wakeup_fd(-1) == -1
