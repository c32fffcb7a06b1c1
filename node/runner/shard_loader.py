"""Brings one shard of a model into memory: only its own layers are ever read."""

import json
import math
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import msgspec
from mlx import nn
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear
from mlx_lm.utils import load_model, load_tokenizer

from node.model.instance import WeightFormat
from node.runner.failures import RunnerError
from node.runner.prompt import Tokenizer

PACKED = (nn.QuantizedLinear, nn.QuantizedEmbedding, QuantizedSwitchLinear)
"""Modules that can be unpacked to float32."""
PACKED_PARTS = (nn.QuantizedAllToShardedLinear, nn.QuantizedShardedToAllLinear)
"""A rank's parts of such modules; they are divided after they are unpacked."""
CONFIG_BYTES_MAX = 16 * 1024 * 1024
HEADER_BYTES_MAX = 256 * 1024 * 1024
LAYERS_MAX = 1024
"""Several times those of the deepest model there is; each is built before a weight is read."""
EXPERTS_MAX = 1024
"""Per layer; of such parts there may be as many as `PARTS_MAX` in all layers together."""
PARTS_MAX = 65_536
SHOWN_MAX = 10**15
_LAYER_COUNTS = frozenset(
    ("num_hidden_layers", "num_layers", "n_layers", "n_layer", "num_nextn_predict_layers")
)
_EXPERT_COUNTS = frozenset(
    ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "n_shared_experts")
)
_ARCHITECTURE = re.compile(r"[A-Za-z0-9_.\-]{1,64}")
_LAYER_IN_NAME = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.(\d+)\.")


def read_config(directory: Path) -> dict[str, Any]:
    """config.json of a model directory, checked as far as loading relies on it.

    Raises:
        RunnerError: it is missing, no JSON, names no architecture, or wants its own code run.
    """
    path = directory / "config.json"
    try:
        if path.stat().st_size > CONFIG_BYTES_MAX:
            raise bad_config(f"{path} has more than {CONFIG_BYTES_MAX} bytes")
        config = json.loads(path.read_bytes())
    except OSError as error:
        raise missing_file(path, error.strerror or str(error)) from error
    except (ValueError, RecursionError) as error:
        raise bad_config(f"{path} is no JSON: {error}") from error
    if not isinstance(config, dict):
        raise bad_config(f"{path} holds no settings")
    if config.get("model_file") is not None:
        raise RunnerError.because(
            "remote_code_refused",
            f"the model wants its own program {config['model_file']!r} to be run",
            "choose a model whose architecture is part of mlx-lm",
        )
    architecture = config.get("model_type")
    if not isinstance(architecture, str) or not _ARCHITECTURE.fullmatch(architecture):
        raise bad_config(f"{path} has no usable model_type: {architecture!r}")
    _check_counts(path, config)
    return config


def _check_counts(path: Path, config: dict[str, Any]) -> None:
    """Refuse counts that no model has, before one object is made for each."""
    most = {"layers": 1, "experts": 1}
    waiting: list[Any] = [config]
    while waiting:
        for name, value in waiting.pop().items():
            if isinstance(value, dict):
                waiting.append(value)
            elif isinstance(value, int) and name in _LAYER_COUNTS | _EXPERT_COUNTS:
                what = "layers" if name in _LAYER_COUNTS else "experts"
                bound = LAYERS_MAX if what == "layers" else EXPERTS_MAX
                if value > bound:
                    shown = f"{value:,}" if value < SHOWN_MAX else f"more than {SHOWN_MAX:,}"
                    raise _absurd(f"{path} asks for {shown} {what} ({name})", bound)
                most[what] = max(most[what], value)
    parts = most["layers"] * most["experts"]
    if parts > PARTS_MAX:
        counts = f"{most['layers']:,} layers of {most['experts']:,} experts"
        raise _absurd(f"{path} asks for {counts}, {parts:,} parts", PARTS_MAX)


def _absurd(what: str, bound: int) -> RunnerError:
    return _fault(
        "config_out_of_bounds",
        f"{what}; at most {bound:,} are taken",
        "fetch the model again, or choose another",
    )


def bad_config(message: str) -> RunnerError:
    """The model's settings are not usable."""
    return _fault("bad_config", message, "fetch the model again, or choose another")


def missing_file(path: Path, reason: str) -> RunnerError:
    """A file of the model is not there or not whole."""
    return _fault("model_file_missing", f"{path}: {reason}", "fetch the model again")


def _fault(code: str, message: str, remedy: str) -> RunnerError:
    error = RunnerError.because(code, message, remedy)
    assert isinstance(error, RunnerError)
    return error


def safetensors_header(path: Path) -> dict[str, tuple[str, tuple[int, ...], int]]:
    """Tensors of a file: data type, shape and bytes by name, checked against the file's size.

    Raises:
        RunnerError: the file is missing, truncated or of another kind.
    """
    try:
        file_bytes = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
            if not 0 < length <= min(HEADER_BYTES_MAX, file_bytes - 8):
                raise missing_file(path, f"{file_bytes} bytes are no whole safetensors file")
            header = json.loads(file.read(length))
        tensors: dict[str, tuple[str, tuple[int, ...], int]] = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            start, end = entry["data_offsets"]
            if not 0 <= start <= end <= file_bytes - 8 - length:
                raise missing_file(path, f"{name} ends at byte {8 + length + end} of {file_bytes}")
            tensors[name] = (str(entry["dtype"]), tuple(map(int, entry["shape"])), end - start)
    except OSError as error:
        raise missing_file(path, error.strerror or str(error)) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise missing_file(path, f"its header is damaged: {error}") from error
    return tensors


def layer_of(tensor_name: str) -> int | None:
    """Number of the layer that a stored tensor belongs to; None for embedding, norm and head."""
    found = _LAYER_IN_NAME.search(tensor_name)
    return int(found[1]) if found else None


def check_files(directory: Path, first_layer: int, end_layer: int) -> None:
    """Make sure that every tensor the shard needs lies whole in the directory.

    Raises:
        RunnerError: one does not.
    """
    files = sorted(directory.glob("model*.safetensors"))
    if not files:
        raise missing_file(directory, "holds no model*.safetensors")
    present = {name for path in files for name in safetensors_header(path)}
    for name, file_name in _weight_map(directory).items():
        layer = layer_of(name)
        needed = first_layer == 0 if layer is None else first_layer <= layer < end_layer
        if needed and name not in present:
            raise missing_file(directory / file_name, f"{name} is not there")


def _weight_map(directory: Path) -> dict[str, str]:
    """The index of which tensor lies in which file; empty where there is none."""
    path = directory / "model.safetensors.index.json"
    if not path.is_file():
        return {}
    try:
        listed = json.loads(path.read_bytes())["weight_map"]
        return {str(name): Path(str(file_name)).name for name, file_name in listed.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise missing_file(path, f"is damaged: {error}") from error


class LoadedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model whose weights are still on disk, but for what has been asked for."""

    model: Any
    config: dict[str, Any]


def open_model(directory: Path) -> LoadedModel:
    """Build the model with nothing read yet.

    Raises:
        RunnerError: the directory is not usable, or the architecture not known.
    """
    config = read_config(directory)
    for path in directory.glob("model*.safetensors"):
        safetensors_header(path)
    is_whole = all((directory / name).exists() for name in set(_weight_map(directory).values()))
    try:
        # A stage's own files are enough for it; but a whole model must fit its architecture.
        model, loaded_config = load_model(directory, lazy=True, strict=is_whole)
    except ValueError as error:
        if "not supported" in str(error):
            raise unsupported(config, str(error)) from error
        raise bad_config(f"the model can't be built: {error}") from error
    except (TypeError, KeyError, AttributeError, ZeroDivisionError, IndexError) as error:
        raise bad_config(f"the model can't be built: {type(error).__name__}: {error}") from error
    except (ImportError, NotImplementedError) as error:
        raise unsupported(config, str(error)) from error
    return LoadedModel(model=model, config=loaded_config)


def unsupported(config: dict[str, Any], reason: str) -> RunnerError:
    """The architecture is not one that can run here."""
    return _fault(
        "unsupported_architecture",
        f"{config['model_type']}: {reason}",
        "choose a model of another architecture, or a newer exoctl",
    )


def open_tokenizer(directory: Path, config: dict[str, Any]) -> Tokenizer:
    """The model's tokenizer.

    Raises:
        RunnerError: its files are missing or damaged.
    """
    try:
        wrapper: Any = load_tokenizer(
            directory,
            tokenizer_config_extra={"trust_remote_code": False},
            eos_token_ids=config.get("eos_token_id"),
        )
    except Exception as error:  # a damaged tokenizer file raises whatever it likes
        raise missing_file(
            directory / "tokenizer.json", f"no usable tokenizer: {type(error).__name__}: {error}"
        ) from error
    return wrapper


def weight_bytes(module: nn.Module) -> tuple[int, int]:
    """Bytes of a module's tensors as they are, and unpacked to float32; nothing is read."""
    stored = dense = 0
    for part in module.modules():
        own = [value for value in part.values() if isinstance(value, mx.array)]
        stored += sum(array.nbytes for array in own)
        if isinstance(part, PACKED + PACKED_PARTS):
            rows = math.prod(part.weight.shape[:-1])
            dense += rows * part.weight.shape[-1] * 32 // part.bits * 4
            own = [part["bias"]] if "bias" in part else []
        dense += sum(
            array.size * 4 if mx.issubdtype(array.dtype, mx.floating) else array.nbytes
            for array in own
        )
    return stored, dense


def materialise(
    loaded: LoadedModel,
    layers: list[nn.Module],
    shard: range,
    weight_format: WeightFormat,
    on_layer: Callable[[int], None],
    group: Any = None,
) -> None:
    """Read the shard's layers, and on its first stage the embedding, norm and head.

    `on_layer` hears how many layers are there. Of each layer only the part of this rank is kept
    where there is a group of ranks.
    """
    if weight_format is WeightFormat.DENSE:
        _make_dense(loaded.model, layers, shard)
    if group is not None:
        loaded.model.shard(group)
    for count, number in enumerate(shard, start=1):
        mx.eval(layers[number].parameters())
        on_layer(count)
    if shard.start == 0:
        of_layers = {id(array) for layer in layers for _, array in tree_flatten(layer.parameters())}
        mx.eval(
            [
                array
                for _, array in tree_flatten(loaded.model.parameters())
                if id(array) not in of_layers
            ]
        )
    mx.clear_cache()


def _make_dense(model: nn.Module, layers: list[nn.Module], shard: range) -> None:
    """Unpack what the shard holds to float32; lazily, so nothing is read here."""
    # The modules are kept beside their numbers, so that no id is ever used twice.
    owners = {
        id(module): (number, module)
        for number, layer in enumerate(layers)
        for module in layer.modules()
    }

    def is_held(module: nn.Module) -> bool:
        owner = owners.get(id(module))
        return owner[0] in shard if owner is not None else shard.start == 0

    replaced: list[tuple[str, nn.Module]] = [
        (name, _unpacked(module))
        for name, module in model.named_modules()
        if isinstance(module, PACKED) and is_held(module)
    ]
    for name, module in replaced:
        _replace(model, name, module)

    def widened(array: mx.array) -> mx.array:
        narrow = array.dtype in (mx.float16, mx.bfloat16)
        return array.astype(mx.float32) if narrow else array

    for module in model.modules():
        own = {key: value for key, value in module.items() if isinstance(value, mx.array)}
        if own and is_held(module) and "scales" not in own:
            module.update(tree_map(widened, own))


def _replace(model: nn.Module, path: str, module: nn.Module) -> None:
    target: Any = model
    *parents, last = path.split(".")
    for key in parents:
        target = target[int(key)] if isinstance(target, list | tuple) else target[key]
    if isinstance(target, list):
        target[int(last)] = module
    else:
        setattr(target, last, module)


def _unpacked(module: Any) -> nn.Module:
    scales, biases = module.scales, module.get("biases")
    if scales.dtype != mx.uint8:
        # Before unpacking, not after: 16-bit scales would round every weight.
        scales = scales.astype(mx.float32)
        biases = biases.astype(mx.float32) if biases is not None else None
    weight = mx.dequantize(
        module.weight, scales, biases, module.group_size, module.bits, module.mode
    )
    has_bias = "bias" in module
    dense: Any
    if isinstance(module, nn.QuantizedEmbedding):
        dense = nn.Embedding(1, 1)
    elif isinstance(module, QuantizedSwitchLinear):
        dense = SwitchLinear(1, 1, 1, bias=has_bias)
    else:
        dense = nn.Linear(1, 1, bias=has_bias)
    dense.weight = weight.astype(mx.float32)
    if has_bias:
        dense.bias = module["bias"].astype(mx.float32)
    return dense
