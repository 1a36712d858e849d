"""How long the engine waits for a machine, in seconds.

A guest can keep its kernel, the sentry, busy or hang it, so every wait has an end. As long as the sentry answers, a
call may take its whole time. If it answers nothing, each call ends within ``LOOK_S`` and ``ANSWER_S``.
"""

from __future__ import annotations

CALL_S = 60.0
# A task of the guest that waits for the host's disk cannot stop earlier.
PAUSE_S = 30.0
# A sentry that is still pausing its guest resumes it afterwards.
RESUME_S = 5.0
CHECKPOINT_S = 900.0
# How often to check during a call that the sentry still answers, and how long it has for that.
LOOK_S = 2.0
ANSWER_S = 8.0
# Until a killed process has ended: more means that it is stuck in the host's kernel.
END_S = 60.0
# A sentry ends within this time, unless its guest keeps the processors busy.
SOON_S = 0.1
