# SPDX-License-Identifier: Apache-2.0
"""When the codes of a weight are made again: rules for Python (_layer.py) and compiled code (csrc)."""

from __future__ import annotations

import contextlib
import itertools
import threading

# A layer with int8 codes: on a CPU a product of at most FEW_ROWS rows with at least MANY_CODES codes takes
# as long as reading the codes. So it reads the module's codes, and sees every change of them. To use the
# library's packed copy, another read of the codes would have to prove the copy current. That made a call of
# 1 to 32 rows 1.9 to 2.1 times as long; this makes it 0.9 to 1.3 times as long (4096x4096 and 12288x3072,
# one thread with AMX).
FEW_ROWS = 32
MANY_CODES = 1 << 21


class _Reuse(threading.local):
    on = False


reuse = _Reuse()


@contextlib.contextmanager
def reuse_weight_codes():
    """Inside this block, in this thread, a weight counts as changed only if torch's version counter says so.

    For gradient accumulation: the first microbatch quantizes the weight, and the later ones use its
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


# What a forward does with the codes of its weight: the bits of the result of plan_of().
KEEP = 1  # the codes are current; then this is the only bit
PROVE = 2  # the codes are current if the weight's fingerprint is the same as when they were made
REMEMBER = 4  # if the codes are made again, compute the weight's fingerprint for a later comparison
MET = 8  # the argument `met` of the next call of plan_of()
MEETS_AGAIN = 16  # the argument `meets_again` of the next call


def plan_of(same, reusing, unused, provable, met, meets_again, once) -> int:
    """Decides what a forward does with the codes of its weight.

    same: torch has seen no change of weight and bias, and weight_updated() was not called. reusing:
    that is enough (reuse_weight_codes). unused: no backward has computed a gradient of the weight since.
    If one has, an optimizer or a sharding scheme may have used it without telling autograd. provable: a
    fingerprint is possible, and cheaper than new codes. met: another forward has already used these
    codes. meets_again: another forward used the previous codes. once: these codes will probably serve
    one forward and its backward, so that a fingerprint does not pay unless meets_again is set.
    """
    if same and reusing:
        return KEEP
    if same and unused:
        plan = MET
    else:
        plan, meets_again = 0, met
    if plan and provable:
        plan |= PROVE
    if meets_again:
        return plan | MEETS_AGAIN | REMEMBER
    return plan if once else plan | REMEMBER


# All results of plan_of(), for the compiled code. The arguments as bits are the index, the first one the
# highest bit.
PLANS = bytes(plan_of(*bits) for bits in itertools.product((False, True), repeat=7))
