"""Measure PyTorch networks, also with gradients and with features of inner modules.

    import jbias.torch

    model = jbias.torch.wrap(torchvision.models.resnet18(weights="DEFAULT"), size=224)
    jbias.measure(model, "jbias:suites/biases:data=imagenet,root=/data/imagenet")

Needs PyTorch: an existing installation, or the extra `torch`. On a machine with a single
core, import this module before jax computes anything.
"""

import contextlib
import functools
import hashlib
import inspect
import itertools
import math
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jaxtyping import Array, Float
from torch import nn

from jbias import errors
from jbias.evals import described_preprocessing, predictors

# PyTorch runs in a callback of a JAX program. XLA has one thread per core; a program that
# waits for a callback in its only thread would wait for ever.
if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) == 1:
    os.environ.setdefault("NPROC", "2")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # Of ImageNet's channels.
ENSEMBLE = "ensemble"  # Key of the mean of all templates.
Images = Float[Array, "b h w 3"]


def wrap(
    module: nn.Module,
    *,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    preprocess: Any = None,
    size: int = 0,
    name: str = "",
    sites: Sequence[str] | Mapping[str, str] = (),
    **options: Any,
) -> predictors.Predictor:
    """Return the Predictor of a module that maps images (b, 3, h, w) to logits (b, k).

    The module may also return an object with an attribute `logits`. The module is put into
    evaluation mode, stays on its device, and keeps its precision.
    mean, std: per-channel mean and standard deviation for normalisation (images in [0, 1]).
      Default: from `preprocess`; else from the module, such as timm's `pretrained_cfg` or an
      attribute of evals.described_preprocessing.ATTRIBUTES; else ImageNet's. A measurement prints
      the source of mean and std, and any difference between arguments and module.
    preprocess: a description of the preprocessing, such as weights.transforms() of
      torchvision or an image processor of transformers; see evals.described_preprocessing.parse.
    size: side of the images, in pixels; 0: any. name: name of the results' folder; default: the
      name of the module's class.
    sites: paths of inner modules (named_modules) whose features can be read, or a mapping
      from your own names to paths; default: the children of the outermost sequences, such
      as "layer1.0".
    options: further options of predictors.Predictor, such as classes. `version` separates
      results of the same module with other weights; default: a digest of the weights.
    ValueError for weights that are not finite, and for unknown sites.
    """
    _check_weights(module)
    network = _Network(module.eval(), sites)
    digest = hashlib.sha256()
    for key, value in module.state_dict().items():
        digest.update(key.encode())
        digest.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy())
    options.setdefault("version", digest.hexdigest()[:16])
    steps = _preprocessing(module, preprocess, mean=mean, std=std, size=size)

    def normalise(image: Images) -> Images:
        return _normalise(image, mean=steps.values["mean"], std=steps.values["std"])

    return predictors.Predictor(
        network.predict,
        name=name or type(module).__name__,
        preprocess=steps,
        size=size,
        apply=lambda image: network.logits(normalise(image)),
        at=lambda image, site: network.at(normalise(image), site),
        net=_ReadableSites(network, normalise),
        **options,
    )


def _check_weights(module: nn.Module) -> None:
    """Raise ValueError if a parameter is NaN or infinite, or a buffer is NaN.

    Buffers may be masks with -inf.
    """
    numbers = [(name, x, torch.isfinite) for name, x in module.named_parameters()]
    numbers += [(name, x, lambda x: ~x.isnan()) for name, x in module.named_buffers()]
    for name, array, is_fine in numbers:
        if array.is_floating_point() and not is_fine(array).all():
            broken = int((~is_fine(array)).sum())
            raise ValueError(
                f"torch: weights must be finite, NaN or infinite are {broken:,} of "
                f"{array.numel():,} in {name}; give other weights"
            )


def _preprocessing(
    module: nn.Module,
    preprocess: Any,
    *,
    mean: float | Sequence[float] | None,
    std: float | Sequence[float] | None,
    size: int,
) -> described_preprocessing.Preprocessing:
    """Return the preprocessing of a module's images, from the arguments or the module.

    Arguments: see `wrap`. ImageNet's mean and std are used if neither the arguments nor the module
    has such values, as for networks of torchvision.
    """
    if preprocess is None:
        described = described_preprocessing.read(module)
    else:
        described = described_preprocessing.parse(preprocess)
    if not {"mean", "std"} & described.values.keys() and _is_torchvision(module):
        origin = "ImageNet's, as of all classifiers of torchvision"
        published = {"mean": MEAN, "std": STD}
        described = described_preprocessing.Preprocessing(
            values={**described.values, **published},
            origins={**described.origins, **dict.fromkeys(published, origin)},
            notes=described.notes,
        )
    explicit = {"mean": mean, "std": std, "size": size or None}
    return described_preprocessing.resolve(
        described, explicit, {"mean": MEAN, "std": STD}
    )


def _is_torchvision(module: nn.Module) -> bool:
    """Return True if torchvision defines the module's class."""
    return type(module).__module__.startswith("torchvision.models.")


class ZeroShot(nn.Module):
    """A classifier of images by their similarity to texts, as in CLIP.

    encode: a module, or a method of a module, that maps images to embeddings (b, d).
    texts: embeddings (k, d) of one text per class. The logits are scale * cosine similarity.
    Source: Radford et al., ICML 2021, https://arxiv.org/abs/2103.00020.
    """

    def __init__(
        self,
        encode: Callable[[torch.Tensor], torch.Tensor],
        texts: torch.Tensor,
        *,
        scale: float = 100.0,
    ):
        super().__init__()
        self.encode, self.scale = encode, scale
        # Registers the encoder's weights. Digests of weights include this attribute's name.
        if inspect.ismethod(encode):
            self.of = encode.__self__
        self.register_buffer("texts", nn.functional.normalize(texts.detach(), dim=-1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits (b, k) of images (b, 3, h, w)."""
        encoded = nn.functional.normalize(_embedding(self.encode(images)), dim=-1)
        return self.scale * encoded @ self.texts.T.to(encoded)

    @classmethod
    def of_prompts(
        cls,
        encode: Callable[[torch.Tensor], torch.Tensor],
        encode_texts: Callable[[list[str]], torch.Tensor],
        *,
        words: Sequence[str],
        templates: Sequence[str],
        scale: float = 100.0,
    ) -> dict[str, "ZeroShot"]:
        """Return a classifier for each template, by template, and their ensemble, by "ensemble".

        encode: see ZeroShot. encode_texts: maps k texts to embeddings (k, d). words: a word for
        each class. templates: texts with "{}" at the place of the word, such as
        "a photo of a {}.". The ensemble, for several templates, has as text of a class the mean
        of its normalised embeddings, as in CLIP's notebook
        (https://github.com/openai/CLIP at d05afc4, notebooks/Prompt_Engineering_for_ImageNet.ipynb).
        ValueError for an invalid template, and for embeddings of another shape.
        """
        _check_templates(templates)
        embeddings = {
            template: _encode_texts(encode_texts, template, words)
            for template in templates
        }
        if len(embeddings) > 1:
            embeddings[ENSEMBLE] = torch.stack([*embeddings.values()]).mean(0)
        return {
            prompt: cls(encode, texts, scale=scale)
            for prompt, texts in embeddings.items()
        }


def wrap_prompts(
    encode: Callable[[torch.Tensor], torch.Tensor],
    encode_texts: Callable[[list[str]], torch.Tensor],
    *,
    classes: Sequence[str],
    templates: Sequence[str],
    name: str,
    words: Sequence[str] | None = None,
    scale: float = 100.0,
    **options: Any,
) -> dict[str, predictors.Predictor]:
    """Return a Predictor for each prompt template and for their ensemble, by ZeroShot.of_prompts.

    Each has a name of its own, such as "clip-a_photo_of_a_CLS", and its template as factor
    "prompt", so that results of prompts can be compared.
    classes: the classes of the outputs, in order. words: their words in prompts; default: the
    classes. name: name of the encoder. encode, encode_texts, templates, scale: see
    ZeroShot.of_prompts. options: of `wrap`, such as preprocess and size.
    """
    words = classes if words is None else words
    if len(words) != len(classes):
        errors.refuse("words", f"be {len(classes):,}, one for each class", len(words))
    networks = ZeroShot.of_prompts(
        encode, encode_texts, words=words, templates=templates, scale=scale
    )
    wrapped: dict[str, predictors.Predictor] = {}
    names: set[str] = set()
    for prompt, network in networks.items():
        label = full_name = f"{name}-{_prompt_slug(prompt)}"
        for number in itertools.count(2):
            if full_name not in names:
                break
            full_name = f"{label}-{number}"
        names.add(full_name)
        factors = {"model": name, "prompt": prompt}
        if prompt == ENSEMBLE:
            factors["templates"] = "\n".join(templates)
        wrapped[prompt] = wrap(
            network, name=full_name, classes=classes, factors=factors, **options
        )
    return wrapped


def _check_templates(templates: Sequence[str]) -> None:
    """Raise ValueError unless there are different templates with one "{}" each."""
    if isinstance(templates, str) or not templates:
        remedy = 'such as ["a photo of a {}."]'
        errors.refuse("templates", "be a list of texts", templates, remedy)
    for template in templates:
        if template.count("{}") != 1:
            must = 'have one "{}", the place of the class'
            errors.refuse("templates", must, template)
    if len({*templates}) < len(templates):
        errors.refuse("templates", "be different texts", [*templates])


def _encode_texts(
    encode_texts: Callable[[list[str]], torch.Tensor],
    template: str,
    words: Sequence[str],
) -> torch.Tensor:
    """Return the normalised embeddings (k, d) of a template with each of k words."""
    texts = [template.replace("{}", word) for word in words]
    with torch.no_grad():
        embeddings = _embedding(encode_texts(texts))
    if embeddings.ndim != 2 or len(embeddings) != len(texts):
        must = f"return embeddings ({len(texts)}, d) of {len(texts)} texts"
        errors.refuse("encode_texts", must, tuple(embeddings.shape))
    return nn.functional.normalize(embeddings.float(), dim=-1)


def _embedding(output: Any) -> torch.Tensor:
    """Return an encoder's output, or its pooler_output, as transformers' encoders return."""
    return output.pooler_output if hasattr(output, "pooler_output") else output


def _prompt_slug(prompt: str) -> str:
    """Return a prompt as part of a folder's name: "a photo of a {}." is "a_photo_of_a_CLS"."""
    return re.sub(r"\W+", "_", prompt.replace("{}", "CLS")).strip("_")[:60]


def _normalise(
    image: Images, mean: float | Sequence[float], std: float | Sequence[float]
) -> Images:
    """Return (image - mean) / std in float32; mean and std: per channel, or one number."""
    mean, std = (jnp.broadcast_to(jnp.float32(x), image.shape) for x in (mean, std))
    return (image - mean) / std


class _Network:
    """A PyTorch module with methods that compute logits and features of JAX arrays.

    Arguments `image` are normalised images (b, h, w, 3). sites: see `wrap`.
    """

    def __init__(self, module: nn.Module, sites: Sequence[str] | Mapping[str, str]):
        self.module, self._lock = module, threading.Lock()
        paths = sites
        if not isinstance(sites, Mapping):
            paths = {path: path for path in sites}
        self._modules = dict(module.named_modules())
        for path in paths.values():
            if path not in self._modules:
                known = ", ".join(x for x in self._modules if x and x.count(".") < 2)
                raise ValueError(f"sites: no module {path!r}; there are {known}")
        # Path of the module of each site.
        self._paths = dict(paths) or {path: path for path in _default_sites(module)}
        self._shapes = functools.cache(self._run_shapes)
        self._logits_and_sites = _differentiable(self, ())

    def logits(self, image: Images) -> Array:
        """Return the logits (b, k) of images; JAX can differentiate this function."""
        return self._logits_and_sites(image)[0]

    def predict(self, images: Float[np.ndarray, "b h w 3"]) -> np.ndarray:
        """Return the logits (b, k) of numpy images, computed outside of JAX."""
        with self._lock, torch.no_grad():
            return _to_numpy(self._forward(self._tensor(images)))

    def _tensor(self, images: Any) -> torch.Tensor:
        """Return images (b, h, w, 3) as the module's input (b, 3, h, w)."""
        weight = next(self.module.parameters(), torch.zeros(()))
        image = torch.from_numpy(np.array(images, np.float32))
        image = image.permute(0, 3, 1, 2).contiguous()
        return image.to(weight.device, weight.dtype)

    def _forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the module's logits (b, k) of images (b, 3, h, w)."""
        output = self.module(image)
        return output.logits if hasattr(output, "logits") else output

    def run(
        self, image: torch.Tensor, sites: Sequence[str]
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the logits of images (b, 3, h, w), and each site's features by name.

        Features have PyTorch's layout. If a module runs several times, its first features are
        returned. A site without a tensor of 3 or 4 axes as output is left out.
        """
        features: dict[str, torch.Tensor] = {}

        def save_output(site, module, inputs, output):
            """Store a module's first features in `features`; return a copy for the network to use.

            site: name of the site. module, inputs, output: arguments of a forward hook of PyTorch.
            Features are the output, or the first entry of a tuple, if this is a tensor with 3 or 4
            axes. For other outputs, and for a second output, return None, so that the output is
            unchanged.
            """
            x = output[0] if isinstance(output, tuple) else output
            is_map = isinstance(x, torch.Tensor) and x.ndim in (3, 4)
            if not is_map or site in features:
                return None
            features[site] = x
            # The network continues with a copy, as it may change the array in place.
            return (x.clone(), *output[1:]) if isinstance(output, tuple) else x.clone()

        with contextlib.ExitStack() as stack:
            for site in sites:
                hook = functools.partial(save_output, site)
                module = self._modules[self._paths[site]]
                stack.callback(module.register_forward_hook(hook).remove)
            return self._forward(image), features

    def _run_shapes(self, side: int) -> tuple[int, dict[str, tuple[int, ...]]]:
        """Return the number of classes, and the shape of each site's features by name.

        side: side of the images, in pixels. Sites without feature maps or tokens are left out.
        """
        with self._lock, torch.no_grad():
            image = self._tensor(np.zeros((1, side, side, 3)))
            logits, features = self.run(image, tuple(self._paths))
        shapes = {site: _channels_last(x).shape for site, x in features.items()}
        return logits.shape[1], shapes

    def shapes(
        self, image: Any, sites: Sequence[str]
    ) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Return the shapes of the logits (b, k) and of each site's features, channels last.

        image: normalised square images (b, h, h, 3), or a jax.ShapeDtypeStruct of them. The
        features are in the order of `sites`. ValueError for a site without features.
        """
        count, shapes = self._shapes(image.shape[1])
        for site in sites:
            if site not in shapes:
                known = ", ".join(shapes)
                raise ValueError(f"torch: site must be of {known}, got {site!r}")
        row_shapes = [(count,), *(shapes[site][1:] for site in sites)]
        return tuple(
            jax.ShapeDtypeStruct((len(image), *shape), np.float32)
            for shape in row_shapes
        )

    def sites(self, side: int) -> tuple[str, ...]:
        """Return the sites that have feature maps or tokens, in the order of computation."""
        return tuple(self._shapes(side)[1])

    @contextlib.contextmanager
    def graph(self, image: Any, sites: Sequence[str]) -> Iterator[tuple]:
        """Yield (images, logits, list of the sites' features), tensors in one autograd graph.

        image: normalised images; the yielded images require a gradient.
        """
        with self._lock, torch.enable_grad():
            x = self._tensor(image).requires_grad_()
            logits, features = self.run(x, sites)
            yield x, logits, [features[site] for site in sites]

    def at(self, image: Images, site: str) -> tuple[Array, Array]:
        """Return a site's features (b, h, w, c), and gradients of the same shape.

        The gradients are of each image's largest logit with respect to the features.
        """
        shape = self.shapes(image, (site,))[1]

        def compute(image):
            with self.graph(image, (site,)) as (_, logits, (features,)):
                (gradient,) = torch.autograd.grad(logits.max(-1).values.sum(), features)
                return tuple(_to_numpy(_channels_last(x)) for x in (features, gradient))

        return jax.pure_callback(compute, (shape, shape), image)


class _ReadableSites:
    """A network with methods that read the features of sites; see models.taps.Readable."""

    def __init__(self, network: _Network, normalise: Callable[[Images], Images]):
        self._network, self._normalise = network, normalise
        self._read = functools.cache(functools.partial(_differentiable, network))

    def sites(self, side: int) -> tuple[str, ...]:
        """Return the sites that have feature maps or tokens; side: in pixels."""
        return self._network.sites(side)

    def read(self, image: Images) -> tuple[Array, dict[str, Array]]:
        """Return the logits of images in [0, 1], and each site's features by name."""
        names = self.sites(image.shape[1])
        logits, *features = self._read(names)(self._normalise(image))
        return logits, dict(zip(names, features, strict=True))


def _differentiable(
    network: _Network, sites: tuple[str, ...]
) -> Callable[[Images], tuple[Array, ...]]:
    """Return a function from images to (logits, features (b, h, w, c) of each site, in order).

    JAX can differentiate the function; PyTorch's autograd computes the gradients.
    """

    @jax.custom_vjp
    def call(image):
        """Return the tuple (logits, features of each site in turn) as JAX arrays.

        image: normalised images (b, h, w, 3). `network` and `sites` are variables of the enclosing
        call.
        """

        def forward(image):
            """Return (logits, features of each site in turn) by PyTorch, as numpy arrays."""
            with network._lock, torch.no_grad():
                logits, features = network.run(network._tensor(image), sites)
            site_features = [_channels_last(features[site]) for site in sites]
            return tuple(_to_numpy(x) for x in (logits, *site_features))

        return jax.pure_callback(forward, network.shapes(image, sites), image)

    def keep(image):
        return call(image), image

    def pull(image, gradients):
        """Return a tuple of one array: the gradient with respect to the images (b, h, w, 3).

        image: the images, as `keep` saved them. gradients: a tuple of the gradients with respect to
        the logits and to the features of each site in turn.
        """

        def backward(image, gradients):
            """Return the gradient by PyTorch's autograd, as a numpy array.

            Arguments: see `pull`.
            """
            with network.graph(image, sites) as (x, logits, features):
                outputs = [logits, *map(_channels_last, features)]
                output_gradients = [
                    torch.from_numpy(np.array(gradient)).to(output)
                    for gradient, output in zip(gradients, outputs)
                ]
                (image_gradient,) = torch.autograd.grad(outputs, x, output_gradients)
            return _to_numpy(image_gradient.permute(0, 2, 3, 1))

        shape = jax.ShapeDtypeStruct(image.shape, np.float32)
        return (jax.pure_callback(backward, shape, image, gradients),)

    call.defvjp(keep, pull)
    return call


def _default_sites(module: nn.Module, path: str = "") -> Iterator[str]:
    """Yield the paths of the default sites: the children of the outermost sequences.

    Sequences are nn.Sequential and nn.ModuleList. A direct child of the network that contains
    no sequence is a site itself. path: path of `module` in the network; "" for the network.
    """
    children = {f"{path}.{k}".strip("."): x for k, x in module.named_children()}
    is_sequence = isinstance(module, nn.Sequential | nn.ModuleList)
    for name, child in children.items():
        inner_sites = [] if is_sequence else list(_default_sites(child, name))
        yield from inner_sites or ([name] if is_sequence or not path else [])


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    """Return features as (b, h, w, c): maps (b, c, h, w), or tokens (b, n, c).

    Tokens become square maps if n is a square, else (b, 1, n, c), as with a class token.
    Maps with equal axes 1 and 2, and another length of axis 3, have channels last already.
    """
    if x.ndim == 3:
        num_tokens = x.shape[1]
        side = math.isqrt(num_tokens)
        is_square = side**2 == num_tokens > 1
        height, width = (side, side) if is_square else (1, num_tokens)
        return x.reshape(len(x), height, width, x.shape[2])
    has_channels_last = x.shape[1] == x.shape[2] != x.shape[3]
    return x if has_channels_last else x.permute(0, 2, 3, 1)


def _to_numpy(x: torch.Tensor) -> np.ndarray:
    """Return a tensor as a float32 array on the host."""
    return x.detach().float().cpu().contiguous().numpy()
