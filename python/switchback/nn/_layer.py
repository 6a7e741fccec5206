# SPDX-License-Identifier: Apache-2.0
"""The layers of the C library that belong to a module, one per dtype and context, and the weights they hold.

A library layer borrows the weight's memory and keeps int8 codes of it until it is told that the
weight has changed. `Layer.use_weight` decides when to tell it.

autograd counts the changes that it sees. It does not see writes through `.data` or NumPy, which are
common: moving averages, merged adapters, optimizers. So a second forward uses the codes of the first
only if the weight's fingerprint proves that its bytes are unchanged. A fingerprint costs
a fraction of quantizing. A device computes it, compares it and makes new codes if it differs, all in
the stream: the host does not wait.

If another thread is using a layer, a call uses another layer on an extra context (_context.py).
Layers that are given the same codes share them. Each layer makes its own codes of a float weight.
"""

from __future__ import annotations

import ctypes
import dataclasses
import threading
import weakref

import torch

from .. import _abi
from .._context import Context
from .._library import check, library
from .._modes import MODES
from .._tensors import (
    DTYPES,
    as_rows,
    bias_matrix_of,
    check_storage,
    context_of,
    is_counted,
    key_of,
    matrix_of,
    memory_of,
)
from . import _dispatch
from ._dispatch import native
from ._given import GivenCodes, bytes_of, shared
from ._rules import KEEP, MEETS_AGAIN, MET, PROVE, REMEMBER, plan_of, reuse


class LayerSet(native.LayerSet if native else object):
    """The library layers of one module. Copies and pickles of it start without layers.

    The compiled code, if there is any, owns latest, updates and weight_gradients.
    """

    announced = 0  # number of weight_updated() calls, of all modules
    SIZES = ("in_features", "out_features")
    groups = 1

    def __init__(self, *sizes_and_options):
        """Arguments: the sizes, in the order of SIZES, and then a LayerOptions."""
        *sizes, options = sizes_and_options
        for name, size in zip(self.SIZES, sizes):
            setattr(self, name, size)
        self.options = options
        # The library has no layers without inputs or outputs.
        self.is_empty = not (self.in_features and self.out_features)
        self.text = options.text  # the options, as torch's operators get them
        # The options as text for operators on codes, which always have the layout [out, in].
        self.text_of_codes = dataclasses.replace(options, transposed=0).text
        # Whether a forward that autograd records keeps codes of blocks of rows of x.
        self.keeps_blocks = options.keeps_blocks and not options.activation
        # With stochastic rounding, the number of backwards so far; each has different random bits.
        self.rounding_step = 0
        self.updates = 0  # number of announced changes of the weight
        # Number of backwards that computed a weight gradient. An optimizer step may follow each of them.
        self.weight_gradients = 0
        self._layers: dict[tuple, Layer] = {}  # by dtype and context
        self.latest: Layer | None = None  # the library's layer that computed last, unless in an extra context
        # The codes that layers were given last, by dtype and device. The lock is held while a layer is
        # given codes, so that concurrent threads quantize and pack them only once.
        self.given: dict[tuple, GivenCodes] = {}
        self.giving = threading.RLock()

    def __reduce__(self):
        return type(self), (*(getattr(self, name) for name in self.SIZES), self.options)

    def __str__(self) -> str:
        return f"a switchback layer with in_features={self.in_features}, out_features={self.out_features}"

    def use(
        self, weight, bias, dtype, device, once: bool, absmax=None, waits: bool = False
    ) -> Layer:
        """For a forward: returns the layer for such inputs, which then holds this weight or, with absmax,
        these codes.

        Use it in `with`: until the end of the block the layer's context is locked, and entered. It is
        the main context, or an extra one if another thread uses the main one. waits: waits for the
        main context instead. once: see plan_of().
        """
        layer = self._take(dtype, device, None, waits)
        try:
            if absmax is None:
                layer.use_weight(weight, bias, self, once)
            else:
                layer.use_codes(weight, absmax, bias, self)
        except BaseException:
            layer.context.lock.release()
            raise
        return layer

    def use_again(
        self, weight, dtype, device, ran: Layer | None = None, absmax=None, waits: bool = False
    ) -> Layer:
        """For a backward: like use(), for the forward that the layer `ran` has run; None is the main layer.

        weight: None if backward does not read it.
        """
        layer = self._take(dtype, device, ran, waits)
        try:
            if absmax is not None:
                layer.use_codes_of_forward(weight, absmax, self)
            elif weight is not None:
                of_forward = not layer.context.is_extra if ran is None else layer is ran
                layer.use_weight_of_forward(weight, of_forward)
        except BaseException:
            layer.context.lock.release()
            raise
        return layer

    def _take(self, dtype, device, ran: Layer | None, waits: bool) -> Layer:
        """Returns `ran` or the main layer, or a layer on another context if another thread uses that context.

        Its context is entered, with the lock held.
        """
        layer = ran or self.latest  # `latest` is the main layer if it fits such inputs
        if ran is None and layer is not None:
            if layer.dtype is not dtype or layer.device != device or not layer.context.is_current():
                layer = None
        wished = context_of(device, "forward", "x") if layer is None else layer.context
        context = wished if wished.lock.acquire(waits) else wished.take()
        if layer is not None and context is wished and context.stream is None:
            return layer
        try:
            if layer is None or context is not wished:
                layer = self._layer_on(context, dtype, device)
            context.enter()
        except BaseException:
            context.lock.release()
            raise
        return layer

    def _layer_on(self, context: Context, dtype: torch.dtype, device: torch.device) -> Layer:
        """Returns the module's layer on a context; creates it if needed. The caller holds the context's lock.
        """
        found = self._layers.get((dtype, context))
        if found is None:
            for key in list(self._layers):
                if key[1].retired:
                    self._layers.pop(key, None)
            found = self._new_layer(dtype, context)
            found.device = device
            self._layers[(dtype, context)] = found
        if not context.is_extra:
            self.latest = found
        return found

    def _new_layer(self, dtype: torch.dtype, context: Context) -> Layer:
        return Layer(self, dtype, context)

    def weight_updated(self) -> None:
        """Makes the next forward treat the weight as changed, whatever torch says."""
        self.updates += 1
        LayerSet.announced += 1

    def next_rounding(self) -> tuple[int, int, int]:
        """The seed, stream and step of the next backward's random bits.

        Each process of torch.distributed has its own stream. Their gradients are averaged, so that
        independent rounding errors average out too.
        """
        step = self.rounding_step
        self.rounding_step = (step + 1) % 2**32
        distributed = torch.distributed
        together = distributed.is_available() and distributed.is_initialized()
        return self.options.seed, distributed.get_rank() if together else 0, step

    def release(self) -> None:
        """Releases the weight and everything that was made from it, such as codes."""
        self._layers = {}
        self.latest = None
        self.given = {}
        self.updates += 1

    def cached_bytes(self) -> int:
        """The bytes of int8 codes and packed weights in the library. Codes that layers share count once."""
        layers = [layer for layer in list(self._layers.values()) if not layer.context.retired]
        return bytes_of(layers)


class Layer(native.Layer if native else object):
    """A switchback_linear of the C library. Callers of its methods hold `context.lock` and have entered
    `context`.

    LayerSet.use() and use_again() return a layer for `with`, which releases the lock.

    The compiled code, if there is any, owns the members that use_weight reads.
    """

    _PREFIX = "switchback_linear_"  # prefix of the library functions that it calls
    _OPTIONS = _abi.LinearOptions

    def __init__(self, owner: LayerSet, dtype: torch.dtype, context: Context):
        self._lib = library()
        self.context = context
        code = DTYPES[dtype]
        out = ctypes.c_void_p()
        context.enter()
        context.destroy_dead_layers()
        create = getattr(self._lib, self._PREFIX + "create")
        sizes = {name: getattr(owner, name) for name in owner.SIZES}
        options = self._OPTIONS(dtype=code, **sizes, **owner.options.members())
        check(create(context.pointer, ctypes.byref(options), ctypes.byref(out)))
        self._own(out.value)
        self.dtype = dtype
        self.given: GivenCodes | None = None  # codes that it shares with other layers
        # _borrowed: the tensors lent to the library; _sources: the tensors that these were made from. While
        # the sources are held, their memory cannot be reused by a tensor with the same key.
        self._borrowed: tuple = ()
        self._lent_at: tuple = ()
        self._lent: _abi.Matrix | None = None
        self._is_copy = False
        self._stream = context.stream
        self._sources: tuple = ()
        self._weight_place: tuple | None = None
        self._bias_place: tuple | None = None
        self._weight_version = self._bias_version = -1
        self._updates = self._weight_gradients = -1
        # The weight's fingerprint at the time when its codes were made; None if it was not computed.
        self._fingerprint: tuple | None = None
        # The matrices of codes, scales and bias that the library copied, and their fingerprints.
        self._made_of: tuple = ([], None)
        self._read_by_backward = False  # whether a backward has run since the codes were made
        self._met = False  # whether another forward has used these codes
        self._meets_again = False  # the value of _met for the previous codes
        self._on_cpu = context.device == "cpu"
        self._seen_again = False  # whether another forward has found this version of the weight
        self._comes_again = False  # the value of _seen_again for the previous version
        self._is_standard = owner.options.mode == "standard"
        # Whether the library quantizes a float32 weight (under autocast) without a cast. Floating point
        # products need a copy in their own dtype instead, which is made once.
        self._reads_float32 = self._OPTIONS is _abi.LinearOptions and MODES[owner.options.mode].is_int8
        # Whether the library is given a transposed copy of the weight.
        self._turns = bool(owner.options.transposed) and not owner.options.reads_transposed
        self._digest = (ctypes.c_uint64 * 2)()
        self._digest_at = ctypes.addressof(self._digest)
        self._make_arguments(owner, code)
        self._code = code
        self._block_rows = owner.options.dw_block_rows if owner.keeps_blocks else 0
        self._sizes = owner.in_features, owner.out_features
        _dispatch.describe(self)

    def _own(self, pointer: int) -> None:
        self.pointer = pointer
        self._destroy = weakref.finalize(
            self, self.context.destroy_layer, pointer, self._PREFIX + "destroy"
        )
        self._destroy.atexit = False

    def _make_arguments(self, owner: LayerSet, code: int) -> None:
        """Creates the C structs for the arguments of forward and backward. Each call fills them in."""
        in_features, out_features = owner.in_features, owner.out_features
        rows, cols = owner.groups * out_features, in_features  # shape of the weight
        if owner.options.reads_transposed:
            rows, cols = cols, rows
        self._x = _abi.Matrix(None, code, 0, in_features, in_features)
        self._y = _abi.Matrix(None, code, 0, out_features, out_features)
        # What was kept of the input for dw: nothing, x itself, or its codes.
        self._nothing, self._kept_x = _abi.KeptInput(), _abi.KeptInput(x=self._x)
        self._codes = _abi.KeptInput(x=_abi.Matrix(None, _abi.S8, 0, 0, 0))
        self._x_of_codes, self._x_of_kept = self._codes.x, self._kept_x.x
        self._grads = _abi.LinearGrads(
            g=_abi.Matrix(None, code, 0, out_features, out_features),
            dx=_abi.Matrix(None, code, 0, in_features, in_features),
            dw=_abi.Matrix(None, code, rows, cols, cols),
            db=_abi.Matrix(None, code, owner.groups, out_features, out_features),
        )
        self._x_at, self._y_at, self._grads_at = map(
            ctypes.addressof, (self._x, self._y, self._grads)
        )
        self._nothing_at, self._kept_x_at, self._codes_at = map(
            ctypes.addressof, (self._nothing, self._kept_x, self._codes)
        )
        self._g, self._dx, self._dw, self._db = (
            getattr(self._grads, name) for name in ("g", "dx", "dw", "db")
        )

    # ---- Setting the weight, and making its codes

    def __enter__(self) -> Layer:
        return self

    def __exit__(self, _type, _exception, _trace) -> None:
        self.context.lock.release()

    def use_weight(self, weight, bias, owner: LayerSet, once: bool) -> None:
        """For a forward: sets the weight and bias, and makes the codes current if they may be outdated. See
        plan_of()."""
        version, place = key_of(weight)
        bias_version, bias_place = key_of(bias)
        there = bias_place == self._bias_place and self._holds(place)
        same = (
            there
            and version == self._weight_version
            and bias_version == self._bias_version
            and owner.updates == self._updates
        )
        plan = plan_of(
            same,
            # A layer on an extra context may have missed changes that another layer of the module was told
            # of.
            reuse.on and version >= 0 and bias_version >= 0 and not self.context.is_extra,
            owner.weight_gradients == self._weight_gradients,
            self._on_cpu and (self._is_copy or not self._is_standard),  # the result of _may_prove()
            self._met,
            self._meets_again,
            once,
        )
        if plan & KEEP:
            return
        self._met, self._meets_again = plan & MET != 0, plan & MEETS_AGAIN != 0
        fingerprint = None
        if plan & PROVE:
            fingerprint = self._fingerprint_of(weight)
            if fingerprint == self._fingerprint:
                if self._is_copy:
                    self._copy_bias_again()
                return
        # These counters are read before the weight is quantized, so that a concurrent change is noticed
        # later.
        updates, weight_gradients = owner.updates, owner.weight_gradients
        if there and not self._is_copy:
            self._fingerprint = None
            self._call("weight_may_have_changed" if self._asks(same) else "weight_updated")
            self._weight_version, self._bias_version = version, bias_version
        else:
            self._lend(weight, place, version, bias, bias_place, bias_version)
        self._updates, self._weight_gradients = updates, weight_gradients
        if fingerprint is None and plan & REMEMBER and self._may_prove():
            fingerprint = self._fingerprint_of(weight)
        self._fingerprint, self._read_by_backward = fingerprint, False

    def use_weight_of_forward(self, weight, of_forward: bool) -> None:
        """For a backward: sets the layer's weight. If the forward used the same weight, its codes are used
        again."""
        version, place = key_of(weight)
        if not of_forward or version != self._weight_version or not self._holds(place):
            self._lend(weight, place, version, None, None, 0)
        elif self._fingerprint is not None and not self._read_by_backward:
            # The first backward makes more codes, from the present weight. They are kept together with the
            # codes of forward, so the weight must still have the same fingerprint.
            fingerprint = self._fingerprint_of(weight)
            if fingerprint != self._fingerprint:
                self._lend(weight, place, version, None, None, 0)
                self._fingerprint = fingerprint
        self._read_by_backward = True

    def _asks(self, same: bool) -> bool:
        """Whether a device should compare the weight's fingerprint before it makes codes again.

        This is worth a read of the weight if torch saw no change: in inference, and in all but the first
        step of gradient accumulation. It is also worth it for a changed weight if several forwards used the
        last one.
        """
        if not same:
            self._comes_again, self._seen_again = self._seen_again, False
        else:
            self._seen_again = True
        return not self._on_cpu and (same or self._comes_again)

    def _call(self, name: str, *arguments) -> None:
        check(getattr(self._lib, self._PREFIX + name)(self.pointer, *arguments))

    def _may_prove(self) -> bool:
        """Whether computing a fingerprint is possible and useful: without codes it would not save anything.
        """
        return self._on_cpu and (self._is_copy or not self._is_standard)

    def _fingerprint_of(self, weight) -> tuple:
        """The fingerprint of the weight that the library reads; of the original weight if the library reads
        a copy."""
        return self._fingerprint_of_tensor(weight) if self._is_copy else self._digest_of(self._lent)

    def _fingerprint_of_tensor(self, weight) -> tuple:
        """The fingerprint of a tensor of any strides and dtype."""
        matrix, memory = matrix_of(weight)
        digest = self._digest_of(matrix)
        del memory  # the tensor must live until here
        return digest

    def _digest_of(self, matrix: _abi.Matrix) -> tuple:
        at = ctypes.addressof(matrix)
        status = self._lib.switchback_fingerprint(self.context.pointer, at, self._digest_at)
        if status:
            check(status)
        return self._digest[0], self._digest[1]  # tuple() takes half a microsecond longer

    def _copy_bias_again(self) -> None:
        """Copies the bias again if the library reads a copy: it may have changed without autograd noticing.
        """
        if self._borrowed[1] is not self._sources[1]:
            self._borrowed[1].copy_(self._sources[1])

    def _holds(self, place) -> bool:
        """Whether the tensors lent to the library were made from the weight at this place and are still
        valid.

        Sharding schemes free the storage of tensors that other code holds. A gradient may then get
        that memory, and the library would refuse to write to what it treats as the weight.
        A copy is valid only on the stream on which it was made: torch reuses memory in that order.
        """
        if place != self._weight_place or not self._borrowed:
            return False
        (weight, bias), (weight_at, bias_at) = self._borrowed, self._lent_at
        return (
            weight.data_ptr() == weight_at
            and (bias is None or bias.data_ptr() == bias_at)
            and (not self._is_copy or self._stream == self.context.stream)
        )

    def _lend(self, weight, place, version, bias, bias_place, bias_version) -> None:
        source = weight.detach()
        matrix = self._readable(source.t() if self._turns else source)
        bias_source = None if bias is None else bias.detach()
        bias_memory = None
        bias_matrix = None
        if bias_source is not None:
            bias_memory = memory_of(bias_source, "forward", "bias").contiguous()
            check_storage(bias_memory, "forward", "bias")
            bias_matrix = ctypes.byref(bias_matrix_of(bias_memory))
        # The weight of a layer with groups has an extra dimension, and its rows are contiguous.
        cols = matrix.shape[-1]
        rows, stride = matrix.numel() // cols, max(matrix.stride(-2), cols)
        lent = _abi.Matrix(matrix.data_ptr(), DTYPES[matrix.dtype], rows, cols, stride)
        self._let_go()  # so that nothing looks current if the call fails
        self._call("set_weight", ctypes.byref(lent), bias_matrix)
        self._borrowed, self._sources = (matrix, bias_memory), (source, bias_source)
        self._lent = lent
        self._lent_at = (lent.data, 0 if bias_memory is None else bias_memory.data_ptr())
        self._is_copy = matrix is not source or bias_memory is not bias_source
        self._stream = self.context.stream
        self._weight_place, self._bias_place = place, bias_place
        self._weight_version, self._bias_version = version, bias_version
        if self._is_short() and not self._is_copy:
            self._hold_weight(matrix, bias_memory)

    def _let_go(self) -> None:
        self._weight_place = self._fingerprint = self.given = None
        if native:
            self._hold_nothing()

    def _is_short(self) -> bool:
        """Whether the compiled code may handle calls of this layer."""
        return native is not None and type(self) is Layer and self._lib is library()

    def _readable(self, weight):
        """Returns the weight in a form that the library can read: the weight itself if its dtype and
        strides fit."""
        weight = memory_of(weight, "forward", "weight")
        check_storage(weight, "forward", "weight")
        cols = weight.shape[-1]
        dtype = self.dtype
        if self._reads_float32 and weight.dtype is torch.float32:
            dtype = torch.float32
        if weight.dtype is not dtype and not weight.is_contiguous():
            weight = weight.to(dtype)  # torch transposes faster if it does not cast as well
        step, element = weight.stride()[-2:]
        if weight.dtype is dtype and (weight.is_contiguous() or (element == 1 and step >= cols)):
            return as_rows(weight, cols)[0]
        kept = self._kept_copy(weight, dtype)
        return as_rows(weight.to(dtype), cols)[0] if kept is None else kept.copy_(weight)

    def _kept_copy(self, weight, dtype):
        """Returns the memory of the present copy of the weight, to copy into again; None if there is none.

        Allocating new memory in each step would cost about as much as the copy.
        """
        if not (self._on_cpu and self._is_copy and self._borrowed):
            return None
        kept = self._borrowed[0]
        if kept is self._sources[0] or kept.shape != weight.shape or kept.dtype is not dtype:
            return None
        if kept.is_inference():
            return None
        self._let_go()
        return kept

    def use_codes(self, codes, absmax, bias, owner: LayerSet) -> None:
        """Sets codes[N,K] with absmax[N] or [1] as the layer's weight. The library keeps a copy."""
        keys = key_of(codes), key_of(absmax), key_of(bias)
        same = (
            self._weight_place == ("codes", *keys[:2])
            and (self._bias_version, self._bias_place) == keys[2]
            and self._updates == owner.updates
        )
        updates = owner.updates
        if not same or self._have_changed((codes, absmax, bias), keys, self._made_of):
            with owner.giving:
                if not self._share_given((codes, absmax, bias), keys, owner):
                    self._set_codes(codes, absmax, bias, keys)
                    self._give(keys, owner, updates)
        self._updates = updates

    def _share_given(self, tensors: tuple, keys: tuple, owner: LayerSet) -> bool:
        """Shares the codes that the module's layers were given last, if these are the same codes; returns
        whether it did."""
        given = owner.given.get((self.dtype, self.device))
        if (
            given is None
            or given.updates != owner.updates
            or given.keys[: len(keys)] != keys
            or self._have_changed(tensors, keys, given.made_of)
        ):
            return False
        pointer = shared(given.pointer, self.context)
        self._let_go()
        destroy = self._destroy
        self._own(pointer)
        _dispatch.describe(self)
        destroy()
        self.given = given
        self._hold_given(given.keys, given.sources, given.made_of)
        self._updates = given.updates
        return True

    def _give(self, keys: tuple, owner: LayerSet, updates: int) -> None:
        """Lets the module's layers on other contexts share the codes that were just set."""
        if self._on_cpu and all(map(is_counted, keys)):
            self.given = owner.given[self.dtype, self.device] = GivenCodes(self, keys, updates)

    def _have_changed(self, tensors: tuple, keys: tuple, made_of: tuple) -> bool:
        """Whether tensors may have changed although their keys match those of the library's copy.

        torch does not count writes of collectives, `.data` and NumPy. On the CPU fingerprints detect
        them. With few rows this costs as much as the product. reuse_weight_codes() skips it.
        """
        if not self._on_cpu:
            return not all(map(is_counted, keys))
        if reuse.on and all(map(is_counted, keys)):
            return False
        matrices, fingerprint = made_of
        for place, (tensor, matrix) in enumerate(zip(tensors, matrices)):
            if tensor.data_ptr() == matrix.data:
                found = self._digest_of(matrix)
            else:  # the copy was made from a contiguous tensor
                found = self._fingerprint_of_tensor(tensor.reshape(-1, tensor.shape[-1]))
            if found != fingerprint[2 * place : 2 * place + 2]:
                return True
        return False

    def _set_codes(self, codes, absmax, bias, keys: tuple) -> None:
        for name, tensor in (("W_int8", codes), ("state_W", absmax), ("bias", bias)):
            if tensor is not None:
                check_storage(memory_of(tensor, "forward", name), "forward", name)
        codes, absmax = codes.detach().contiguous(), absmax.detach().contiguous()
        rows, cols = codes.shape
        lent = _abi.Matrix(codes.data_ptr(), _abi.S8, rows, cols, cols)
        copied = [lent, _abi.Matrix(absmax.data_ptr(), _abi.F32, 1, absmax.numel(), absmax.numel())]
        bias_memory = bias_matrix = None
        if bias is not None:
            bias_memory = bias.detach().contiguous()
            copied.append(bias_matrix_of(bias_memory))
            bias_matrix = ctypes.byref(copied[-1])
        fingerprint = None
        if self._on_cpu:  # computed before the codes are copied, so that a concurrent change is noticed later
            known = (matrix for matrix in copied if matrix.dtype >= 0)
            fingerprint = sum(map(self._digest_of, known), ())
        self._let_go()
        check(
            self._lib.switchback_linear_set_quantized_weight(
                self.pointer, ctypes.byref(lent), absmax.data_ptr(), absmax.numel(), bias_matrix
            )
        )
        self._hold_given(keys, (codes, absmax, bias_memory), (copied, fingerprint))

    def _hold_given(self, keys: tuple, sources: tuple, made_of: tuple) -> None:
        """Records the tensors that the library's copy was made from."""
        self._borrowed = self._lent_at = ()  # the library borrows nothing: it copied everything
        self._sources, self._made_of = sources, made_of
        self._weight_place, (self._bias_version, self._bias_place) = ("codes", *keys[:2]), keys[2]
        self._fingerprint = made_of[1]
        if self._is_short() and all(map(is_counted, keys)):
            self._hold_codes(*sources, *(key[0] for key in keys))

    def use_codes_of_forward(self, codes, absmax, owner: LayerSet) -> None:
        """For a backward: sets codes[N,K] with absmax[N] or [1] as the weight, unless the layer already has
        them."""
        keys = key_of(codes), key_of(absmax)
        same = self._weight_place == ("codes", *keys)
        if not same or self._have_changed((codes, absmax), keys, self._made_of):
            with owner.giving:
                if not self._share_given((codes, absmax), keys, owner):
                    self._set_codes(codes, absmax, None, (*keys, key_of(None)))

    # ---- Forward and backward

    def forward(self, x, rows: int, stride: int, y, trains: bool, codes=None, absmax=None) -> None:
        """Computes y[rows,N] from x[rows,K]. If `codes` is given, writes codes of x's rows, or of blocks of
        them, there."""
        m, d = self._x, self._y
        m.data, m.dtype, m.rows, m.stride = x.data_ptr(), DTYPES[x.dtype], rows, stride
        d.data, d.rows = y.data_ptr(), rows
        save = _abi.SAVE_CALLER if trains else _abi.SAVE_NOTHING
        kept = None if codes is None else self._kept_codes(codes, absmax)
        status = self._lib.switchback_linear_forward(
            self.pointer, self._x_at, self._y_at, save, kept
        )
        if status:
            check(status)

    def _kept_codes(self, codes, absmax) -> int:
        """Fills in the C struct of a kept input: codes of the rows of x, or codes[K,padded] of blocks of
        rows."""
        kept, q = self._codes, self._x_of_codes
        q.data, (q.rows, q.cols) = codes.data_ptr(), codes.shape
        q.stride = q.cols
        kept.absmax, kept.in_blocks = absmax.data_ptr(), absmax.dim() == 2
        return self._codes_at

    def backward(self, g, rows: int, stride: int, dx, dw, db, x, x_stride: int, absmax) -> None:
        """Computes dx[rows,K], dw and db[N]; outputs that are None are left out.

        dw is [N,K], or [K,N] if the library reads the weight in that form.
        x[rows,K] is the input or, with absmax, its codes as forward() made them. It is None if dw is
        None.
        """
        self._set_gradients(g, rows, stride, dx, dw, db)
        kept = self._nothing_at
        if absmax is not None:
            kept = self._kept_codes(x, absmax)
        elif x is not None:
            p, kept = self._x_of_kept, self._kept_x_at
            p.data, p.rows, p.stride = x.data_ptr(), rows, x_stride
        status = self._lib.switchback_linear_backward(self.pointer, self._grads_at, kept)
        if status:
            check(status)

    def _set_gradients(self, g, rows: int, stride: int, dx, dw, db) -> None:
        """Fills in the C struct with the gradients of a backward, whose address is _grads_at."""
        m, d, w, b = self._g, self._dx, self._dw, self._db
        m.data, m.rows, m.stride = g.data_ptr(), rows, stride
        d.data, d.rows = None if dx is None else dx.data_ptr(), rows
        w.data = b.data = None
        if dw is not None:
            w.data, w.dtype = dw.data_ptr(), DTYPES[dw.dtype]
        if db is not None:
            b.data, b.dtype = db.data_ptr(), DTYPES[db.dtype]

    def round_stochastically(self, seed: int, stream: int, step: int) -> None:
        """Sets the seed, stream and step of the next backward's random bits."""
        grads = self._grads
        grads.stochastic = 1
        grads.rounding_seed, grads.rounding_stream, grads.rounding_step = seed, stream, step

    def cached_bytes(self) -> int:
        """The bytes of int8 codes and packed weights that this layer holds in the library."""
        info = _abi.LayerInfo()
        with self.context.lock:
            self._call("get_info", ctypes.byref(info))
        return info.cached_weight_bytes
