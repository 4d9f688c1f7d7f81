"""Where a process begins that is one command, and what Ctrl-C does at its edges.

What the command imports takes up to a second, in which nothing has been done and nothing is to be told: Ctrl-C just
ends the process. So does another one, once a first is being answered.
"""

from __future__ import annotations

import signal

_own_process = False


def main() -> None:
    global _own_process
    # Whoever started us may want it ignored, as `nohup` and scripts do for what they leave in the background.
    _own_process = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    interrupt_at_once()
    from lithify.cli.main import main as run

    if _own_process:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def interrupt_at_once() -> None:
    """From now on, in a process that is ours; not where somebody calls the command line from theirs."""
    if _own_process:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
