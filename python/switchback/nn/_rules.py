# SPDX-License-Identifier: Apache-2.0
"""When codes of a weight are made again. Python (_layer.py) and compiled code (csrc) follow these rules."""

from __future__ import annotations

import contextlib
import itertools
import threading

# A product of at most so many rows on a CPU takes as long as reading a weight of so many codes or more.
# It reads those of the module, and so sees every change. The library's copy would have to be proven
# by another read, which made a call of 1 to 32 rows 1.9 to 2.1 times as long; this makes it 0.9 to 1.3
# times as long (4096x4096 and 12288x3072, one thread with AMX).
FEW_ROWS = 32
MANY_CODES = 1 << 21


class _Reuse(threading.local):
    on = False


reuse = _Reuse()


@contextlib.contextmanager
def reuse_weight_codes():
    """Within it, in this thread, a weight counts as changed only if torch says so.

    For gradient accumulation: the first microbatch quantizes the weight, and the others use its
    codes. For inference: a forward does not check whether the weight, or the codes of a prepared
    layer, have changed. Inside the block, call `weight_updated()` after changes that autograd's version
    counter does not see (through `.data` or NumPy, by collectives, or by optimizers and sharding that
    work there). The reuse ends with the block.
    """
    before = reuse.on
    reuse.on = True
    try:
        yield
    finally:
        reuse.on = before


# What a plan says, as bits.
KEEP = 1  # the codes are current
PROVE = 2  # they are, if the weight's fingerprint is the one that was taken when they were made
REMEMBER = 4  # if they are made again, take the weight's fingerprint, for a later proof
MET = 8  # the next plan's `met`
MEETS_AGAIN = 16  # the next plan's `meets_again`


def plan_of(same, reusing, unused, provable, met, meets_again, once) -> int:
    """What a forward does about the codes of its weight.

    same: torch has seen no change of weight and bias, and none was announced. reusing: that is enough
    (reuse_weight_codes). unused: no backward has computed a gradient of the weight since; an optimizer
    or a sharding scheme may have used one without telling autograd. provable: a fingerprint can be
    taken, and is cheaper than new codes. met: another forward has used these codes already;
    meets_again: so it was with the codes before. once: these codes will probably serve one forward
    and its backward, so a fingerprint would not pay, unless meets_again says otherwise.
    """
    if same and reusing:
        return KEEP | (met and MET) | (meets_again and MEETS_AGAIN)
    if same and unused:
        plan = MET
    else:
        plan, meets_again = 0, met
    if plan and provable:
        plan |= PROVE
    if meets_again:
        return plan | MEETS_AGAIN | REMEMBER
    return plan if once else plan | REMEMBER


# The plans in the order of their arguments as bits, the first one highest: what compiled code reads.
PLANS = bytes(plan_of(*bits) for bits in itertools.product((False, True), repeat=7))
