"""The layout of a process's ring file, for the one who writes it and the one who reads it.

    64 slots of 8 bytes, unsigned, little endian (every machine torch runs on is)
    two areas of text: the main thread's last sampled stack, written in turn
    a reserve: events that could not be appended to the spool (a full disk), one a line
"""

MAGIC = 0x31304D54  # "TM01"

(
    MAGIC_SLOT,
    PID,
    PHASE,
    BATCH,
    LOADER,
    EPOCH,
    STEPS,
    CALLS,
    SPARE,
    MODULE,
    SCHEDULES,
    FETCHES,
    INDEX,
    OVERHEAD_NS,
    STACK_SEQUENCE,
    STACK_TIME_NS,
    SAMPLES,
    EVENTS,
    ENDED,
    DUMP_SIGNAL,
    RESERVE_USED,
    SAMPLE_BATCH,
) = range(22)

SLOTS = 64
IN_USE = 22
AREA_START = SLOTS * 8
AREA_SIZE = 8192
RESERVE_START = AREA_START + 2 * AREA_SIZE
RESERVE_SIZE = 64 << 10
SIZE = RESERVE_START + RESERVE_SIZE

PHASES = ("setup", "data", "forward", "backward", "step", "other")
SETUP, DATA, FORWARD, BACKWARD, STEP, OTHER = range(6)

# Any of these moving is progress.
PROGRESS = (BATCH, EPOCH, STEPS, CALLS, FETCHES, SCHEDULES)
