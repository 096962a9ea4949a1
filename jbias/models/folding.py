"""Fold batch norms into the convolutions before them, for evaluation.

With running statistics a batch norm is an affine map of each channel, so that a convolution
and the batch norm after it are one convolution: with slope = scale / sqrt(var + eps),

    BN(conv(x, kernel) + b) = conv(x, kernel * slope) + (b - mean) * slope + bias

A GPU then computes convolution, bias, shortcut and ReLU in one call of cuDNN, and the map
between convolution and batch norm is never written to memory. Kernels are multiplied in
float32, inside the compiled program: the variables do not change, and if kernels are
converted to bfloat16 anyway, folding adds no pass over memory. Results are equal up to
rounding.

A batch norm can be folded if it reads the output of a convolution directly, and nothing
else reads that output or the kernel. Such pairs are found in the function's jaxpr.
"""

import collections
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from flax import linen as nn
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, PyTree

from jbias.models import layers

# (variables, images) -> logits, in evaluation.
Apply = Callable[[PyTree, Array], Array]


class _Convolution(NamedTuple):
    """Indices of a convolution's parameters among the leaves of the variables."""

    kernel: int
    bias: int | None  # None if the convolution has no bias.


class _Norm(NamedTuple):
    """Indices of a batch norm's variables among the leaves, and its epsilon."""

    scale: int
    bias: int
    mean: int
    var: int
    eps: float


def fold_norms(apply: Apply) -> Apply:
    """Return a function equal to `apply`, with batch norms folded into convolutions.

    apply: (variables, images) -> logits; may call several flax modules, or several methods
      of a module. A pair of nn.Conv and layers.BatchNorm is folded only if both read the
      arrays in `variables` unchanged and nothing else reads the map between them.
    """

    def folded(variables: PyTree, image: Array) -> Array:
        original, tree = jax.tree.flatten(variables)
        leaves = [*original]
        # The bias that a folded batch norm adds, None if its convolution adds it. The key
        # is the id of the array that replaces the norm's scale.
        levels: dict[int, Array | None] = {}
        for conv, norm in _foldable(apply, variables, image):
            slope = original[norm.scale] * jax.lax.rsqrt(original[norm.var] + norm.eps)
            level = original[norm.bias] - original[norm.mean] * slope
            kernel = original[conv.kernel]
            leaves[conv.kernel] = kernel * layers.align_channels(slope, kernel)
            if conv.bias is None:
                leaves[norm.scale] = level
                levels[id(level)] = level
            else:
                leaves[conv.bias] = original[conv.bias] * slope + level
                leaves[norm.scale] = slope
                levels[id(slope)] = None

        def skip_folded_norms(call, args, kwargs, context):
            """Return a module's output; for a folded batch norm, the input plus the norm's level.

            Arguments: see flax.linen.intercept_methods.
            """
            module = context.module
            if not _is_call(context, layers.BatchNorm):
                return call(*args, **kwargs)
            scale = module.variables["params"]["scale"]
            if id(scale) not in levels:
                return call(*args, **kwargs)
            x = args[0].astype(module.dtype)
            level = levels[id(scale)]
            if level is None:
                return x
            return x + layers.align_channels(level.astype(module.dtype), x)

        with nn.intercept_methods(skip_folded_norms):
            return apply(jax.tree.unflatten(tree, leaves), image)

    return folded


def count_foldable(apply: Apply, variables: PyTree, image: Any) -> int:
    """Return the number of batch norms that `fold_norms` folds.

    variables, image: arrays or their shapes.
    """
    return len(_foldable(apply, variables, image))


def _foldable(
    apply: Apply, variables: PyTree, image: Any
) -> list[tuple[_Convolution, _Norm]]:
    """Return the pairs of a convolution and a batch norm that can be one convolution.

    Arguments: see `count_foldable`.
    """
    calls: list[_Convolution | _Norm] = []

    # Names the outputs of convolutions and the inputs of batch norms in the jaxpr of `apply`,
    # by the index of the call in `calls`. A call is left out if its parameters are not leaves
    # of `variables`.
    def marked_apply(variables: PyTree, image: Array) -> Array:
        leaves = jax.tree.leaves(variables)
        leaf_index_by_id = {id(leaf): i for i, leaf in enumerate(leaves)}

        def mark(call, args, kwargs, context):
            name, module = f"{_MARK}{len(calls)}", context.module
            if _is_call(context, nn.Conv):
                out = call(*args, **kwargs)
                conv = _convolution(module, leaf_index_by_id)
                if conv is None:
                    return out
                calls.append(conv)
                return checkpoint_name(out, name)
            if _is_call(context, layers.BatchNorm) and not kwargs.get("train"):
                norm = _norm(module, leaf_index_by_id)
                if norm is not None:
                    calls.append(norm)
                    return call(checkpoint_name(args[0], name), *args[1:], **kwargs)
            return call(*args, **kwargs)

        with nn.intercept_methods(mark):
            return apply(variables, image)

    shape = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)
    shapes = jax.tree.map(shape, (variables, image))
    return _find_pairs(jax.make_jaxpr(marked_apply)(*shapes).jaxpr, calls)


_MARK = "folding: call "


def _find_pairs(
    jaxpr: Any, calls: Sequence[_Convolution | _Norm]
) -> list[tuple[_Convolution, _Norm]]:
    """Return the pairs of a convolution and the batch norm that alone reads the output.

    A pair is left out if its kernel, bias or scale is read more than once, or if it is inside
    a loop or a branch.

    jaxpr: the jaxpr of the marked function, which names the output of each convolution and
      the input of each batch norm by its index in `calls`.
    """
    # The equations that read a variable; None stands for an output of the jaxpr.
    readers = collections.defaultdict(list)
    for eqn in jaxpr.eqns:
        for x in eqn.invars:
            if not hasattr(x, "val"):  # Literals have `val`.
                readers[x].append(eqn)
    for x in jaxpr.outvars:
        if not hasattr(x, "val"):
            readers[x].append(None)

    def call_at(eqn: Any) -> _Convolution | _Norm | None:
        """Return the call whose input or output an equation names; None for other equations."""
        name = str(eqn.params.get("name", "")) if eqn else ""
        return calls[int(name.removeprefix(_MARK))] if name.startswith(_MARK) else None

    def are_read_once(indices: Sequence[int | None]) -> bool:
        """Return True if each variable with these indices, except None, is read only once."""
        return all(len(readers[jaxpr.invars[i]]) == 1 for i in indices if i is not None)

    pairs = []
    for eqn in jaxpr.eqns:
        conv = call_at(eqn)
        output_readers = readers[eqn.outvars[0]] if eqn.outvars else []
        if not isinstance(conv, _Convolution) or len(output_readers) != 1:
            continue
        norm = call_at(output_readers[0])
        if isinstance(norm, _Norm) and are_read_once(
            [conv.kernel, conv.bias, norm.scale]
        ):
            pairs.append((conv, norm))
    return pairs


def _is_call(context: Any, kind: type) -> bool:
    """Return True if the intercepted method is __call__ of a module of exactly this class.

    context: the context that flax.linen.intercept_methods passes.
    """
    return type(context.module) is kind and context.method_name == "__call__"


def _convolution(
    module: nn.Conv, leaf_index_by_id: dict[int, int]
) -> _Convolution | None:
    """Return the indices of a convolution's parameters, None if a parameter is not a leaf.

    leaf_index_by_id: index of each leaf of the variables, by the leaf's id().
    """
    params = module.variables["params"]
    kernel = leaf_index_by_id.get(id(params["kernel"]))
    bias = leaf_index_by_id.get(id(params["bias"])) if module.use_bias else None
    if kernel is None or (module.use_bias and bias is None):
        return None
    return _Convolution(kernel=kernel, bias=bias)


def _norm(module: layers.BatchNorm, leaf_index_by_id: dict[int, int]) -> _Norm | None:
    """Return the indices of a batch norm's variables, None if a variable is not a leaf.

    leaf_index_by_id: see `_convolution`.
    """
    params, stats = module.variables["params"], module.variables["stats"]
    values = (params["scale"], params["bias"], stats["mean"], stats["var"])
    indices = [leaf_index_by_id.get(id(value)) for value in values]
    if None in indices:
        return None
    scale, bias, mean, var = indices
    return _Norm(scale=scale, bias=bias, mean=mean, var=var, eps=module.eps)
