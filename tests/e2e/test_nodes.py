"""Real nodes, from outside: what a person or a client does to them."""

import json
import os
import secrets
import shutil
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import httpx2
import psutil
import pytest

from tests.fakes.node_process import NodeProcess, NodeProcesses, wait_for

pytestmark = pytest.mark.e2e
MODEL = "smollm2-135m-instruct"
QUESTION = "What is the capital of France?"


def host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def is_free(address: str) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(host_and_port(address))
        except OSError:
            return False
    return True


def healthy(node: NodeProcess) -> bool:
    return httpx2.get(f"{node.url}/health", timeout=10).status_code == 200


def test_one_node_loads_answers_and_leaves_nothing(nodes: NodeProcesses) -> None:
    node = nodes.start("one").wait_ready()
    assert node.cli("load", MODEL).returncode == 0
    answer = node.cli("run", MODEL, QUESTION, "--temperature", "0", "--max-tokens", "20")
    assert "Paris" in answer.stdout
    listed = node.json("ps")["items"]
    assert [item["model"] for item in listed] == [MODEL]
    runners = node.runner_ids()
    assert all(psutil.pid_exists(pid) for pid in runners.values())
    assert node.stop() == 0
    assert not any(psutil.pid_exists(pid) for pid in runners.values())
    assert is_free(node.api)
    assert is_free(node.cluster_address)
    assert nodes.processes() == []
    assert (node.state_directory / "node.lock").read_bytes() == b""


def test_two_stages_answer_as_one_does_on_every_node(nodes: NodeProcesses) -> None:
    one, two = nodes.cluster("one", "two")
    ask = ("--temperature", "0", "--max-tokens", "24")
    assert one.cli("load", MODEL, "--nodes", "one").returncode == 0
    alone = one.cli("run", MODEL, QUESTION, *ask).stdout
    placed = one.json("ps")["items"][0]
    assert one.cli("unload", placed["instance"]).returncode == 0
    assert one.cli("load", MODEL, "--nodes", "one,two").returncode == 0
    for node in (one, two):
        assert node.cli("run", MODEL, QUESTION, *ask).stdout == alone
    (instance,) = one.state()["instances"].values()
    assert [shard["rank"] for shard in instance["shards"]] == [0, 1]


def test_a_killed_master_leaves_runners_and_decisions_as_they_were(nodes: NodeProcesses) -> None:
    one, two, three = nodes.cluster("one", "two", "three")
    by_id = {node.node: node for node in (one, two, three)}
    master = by_id[one.state()["session"]["master"]]
    rest = [node for node in (one, two, three) if node is not master]
    names = ",".join(node.name for node in rest)
    assert rest[0].cli("load", MODEL, "--nodes", names).returncode == 0
    before = {node.name: node.runner_ids() for node in rest}
    instances = set(rest[0].state()["instances"])
    master.kill()
    wait_for(
        lambda: rest[0].state()["session"]["master"] != master.node, "a new master", seconds=10
    )
    assert rest[0].cli("node", "cordon", rest[1].name).returncode == 0
    assert set(rest[1].state()["instances"]) == instances
    assert {node.name: node.runner_ids() for node in rest} == before
    answer = rest[0].cli("run", MODEL, QUESTION, "--temperature", "0", "--max-tokens", "12")
    assert "Paris" in answer.stdout
    lost = wait_for(
        lambda: rest[0].state()["nodes"][master.node]["lost"], "the loss to be seen", seconds=6
    )
    assert lost


def runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def asks(node: NodeProcess) -> Callable[[], bool]:
    """Whether the model answers at this node's API."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}

    def answers() -> bool:
        url = f"{node.url}/v1/chat/completions"
        return httpx2.post(url, json=body, timeout=30).status_code == 200

    return answers


def test_a_killed_node_comes_back_to_its_runner_which_kept_its_weights(
    nodes: NodeProcesses,
) -> None:
    node = nodes.start("one").wait_ready()
    assert node.cli("load", MODEL).returncode == 0
    before, runners = node.state(), node.runner_ids()
    body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "Count."}]}
    url = f"{node.url}/v1/chat/completions"
    with httpx2.stream("POST", url, json=body, timeout=60) as reply:
        lines = reply.iter_lines()
        next(lines)
        node.kill()
        with pytest.raises(httpx2.TransportError):
            list(lines)
    again = nodes.start("one").wait_ready()
    wait_for(asks(again), "the model to answer again", seconds=3)
    assert again.runner_ids() == runners
    after = again.state()
    assert again.node == node.node
    assert after["cluster"] == before["cluster"]
    assert after["instances"] == before["instances"]
    assert after["attempts"] == before["attempts"]
    second = again.cli("--no-ui", "--port", "0", "--api-port", "0", "--no-discovery")
    assert second.returncode == 4, "a second node on this state directory takes no runner"
    assert asks(again)()
    assert again.stop() == 0
    assert not any(runs(pid) for pid in runners.values()), "a clean stop takes it along"


def test_a_stage_whose_node_was_killed_goes_on_in_its_ring(nodes: NodeProcesses) -> None:
    one, two = nodes.cluster("one", "two")
    assert one.cli("load", MODEL, "--nodes", "one,two").returncode == 0
    runners = {**one.runner_ids(), **two.runner_ids()}
    two.kill()
    again = nodes.start("two", "--peer", one.cluster_address).wait_ready()
    wait_for(lambda: one.json("ps")["items"][0]["ready"], "the instance to be whole again")
    assert {**one.runner_ids(), **again.runner_ids()} == runners
    assert "Paris" in one.cli("run", MODEL, QUESTION, "--temperature", "0").stdout


def test_a_node_that_stays_away_is_outlived_by_no_runner_and_its_instance_starts_anew(
    nodes: NodeProcesses,
) -> None:
    node = nodes.start("one").wait_ready()
    assert node.cli("load", MODEL).returncode == 0
    (pid,) = node.runner_ids().values()
    node.kill()
    psutil.Process(pid).kill()
    again = nodes.start("one").wait_ready()
    assert again.cli("wait", "--for", f"model={MODEL}", "--timeout", "60").returncode == 0
    assert set(again.runner_ids().values()) != {pid}


def test_office_and_models_go_on_elsewhere_when_their_nodes_go(nodes: NodeProcesses) -> None:
    one, two, three = nodes.cluster("one", "two", "three")
    by_id = {node.node: node for node in (one, two, three)}
    before = one.state()["session"]["master"]
    handed = two.json("master", "step-down")["items"][0]
    assert handed["subject"] == two.state()["session"]["master"] != before
    master = by_id[handed["subject"]]
    holder, third = (node for node in (one, two, three) if node is not master)
    # Placed on the holder by leaving the others out for a moment, not by naming it.
    assert master.cli("node", "cordon", master.name).returncode == 0
    assert master.cli("node", "cordon", third.name).returncode == 0
    assert master.cli("load", MODEL).returncode == 0
    assert master.cli("node", "uncordon", third.name).returncode == 0
    assert holder.stop() == 0
    stopped = wait_for(lambda: master.state()["nodes"][holder.node]["stopped"], "it to be seen", 3)
    assert stopped
    listed = {item["name"]: item["state"] for item in master.json("node", "ls")["items"]}
    assert listed[holder.name] == "stopped"
    assert master.json("ps")["items"][0]["failure"]["code"] == "node_stopped"
    moved = wait_for(
        lambda: [item for item in master.json("ps")["items"] if item["ready"]], "it to move", 40
    )
    assert [shard["node_name"] for shard in moved[0]["shards"]] == [third.name]
    assert asks(master)()


def test_a_master_that_is_alone_does_not_step_down(module_nodes: NodeProcesses) -> None:
    one = module_nodes.start("alone").wait_ready()
    refused = one.cli("master", "step-down")
    assert refused.returncode == 4
    assert "start another node" in refused.stderr


def test_a_second_node_on_the_same_state_is_refused_by_name(nodes: NodeProcesses) -> None:
    node = nodes.start("one").wait_ready()
    second = node.cli("--no-ui", "--port", "0", "--api-port", "0", "--no-discovery")
    assert second.returncode == 4
    assert str(node.process.pid) in second.stderr
    assert "--state-dir" in second.stderr
    assert healthy(node)


@pytest.mark.parametrize("which", ["--port", "--api-port"])
def test_a_taken_port_is_named_with_its_owner(nodes: NodeProcesses, which: str) -> None:
    node = nodes.start("one").wait_ready()
    taken = node.cluster_address if which == "--port" else node.api
    other = {"--port": "--api-port", "--api-port": "--port"}[which]
    port = str(host_and_port(taken)[1])
    refused = node.cli(
        *("--no-ui", "--state-dir", str(nodes.root / "two"), which, port, other, "0"),
        *("--bind", "127.0.0.1", "--no-discovery"),
    )
    assert refused.returncode == 4
    assert port in refused.stderr
    assert str(node.process.pid) in refused.stderr


def test_a_wrong_code_is_refused_and_changes_nothing(nodes: NodeProcesses) -> None:
    one, two = nodes.start("one").wait_ready(), nodes.start("two").wait_ready()
    one.json("cluster", "invite")
    cluster = two.state()["cluster"]
    wrong = two.cli("cluster", "join", "AAAAA-BBBBB-CCCCC-DDDDD", "--peer", one.cluster_address)
    assert wrong.returncode == 5, wrong.stderr
    nonsense = two.cli("cluster", "join", "nonsense", "--peer", one.cluster_address)
    assert nonsense.returncode == 2
    nobody = two.cli("cluster", "join", "AAAAA-BBBBB-CCCCC-DDDDD", "--peer", "127.0.0.1:9")
    assert nobody.returncode == 2
    assert two.state()["cluster"] == cluster


def test_a_code_works_once(nodes: NodeProcesses) -> None:
    one, two = nodes.cluster("one", "two")
    three = nodes.start("three").wait_ready()
    code = one.json("cluster", "invite")["items"][0]["code"]
    peer = ("--peer", one.cluster_address)
    assert three.cli("cluster", "join", code, *peer).returncode == 0
    four = nodes.start("four").wait_ready()
    assert four.cli("cluster", "join", code, *peer).returncode == 5
    assert len(two.state()["nodes"]) == 3


def test_a_node_that_leaves_goes_on_alone(nodes: NodeProcesses) -> None:
    one, two = nodes.cluster("one", "two")
    assert two.cli("cluster", "leave", "--yes").returncode == 0
    wait_for(lambda: len(one.state()["nodes"]) == 1, "one to be alone")
    assert len(two.state()["nodes"]) == 1
    assert two.state()["cluster"] != one.state()["cluster"]
    code = one.json("cluster", "invite")["items"][0]["code"]
    back = two.cli("cluster", "join", code, "--peer", one.cluster_address)
    assert back.returncode == 0, back.stderr


def test_garbage_on_the_cluster_port_disturbs_nobody(nodes: NodeProcesses) -> None:
    one, two = nodes.cluster("one", "two")
    place = host_and_port(one.cluster_address)
    for payload in (
        b"GET / HTTP/1.1\r\n\r\n",
        secrets.token_bytes(5000),
        struct.pack(">I", 2**31) + b"x" * 100,
        b"",
        b"\x16\x03\x01" + secrets.token_bytes(500),
    ):
        with socket.create_connection(place, timeout=5) as attacker:
            attacker.sendall(payload)
    held = [socket.create_connection(place, timeout=5) for _ in range(60)]
    assert one.cli("node", "cordon", "two").returncode == 0
    wait_for(lambda: two.state()["nodes"][two.node]["cordoned"], "the entry to arrive")
    for attacker in held:
        attacker.close()
    assert healthy(one)


def test_bad_bodies_are_answered_with_the_fault(nodes: NodeProcesses) -> None:
    node = nodes.start("one").wait_ready()
    url = f"{node.url}/v1/chat/completions"
    headers = {"content-type": "application/json"}
    for body in (b"{", b"[]", b'{"model": 3}', b'{"model":"x","messages":7}', b"\xff\xfe"):
        refused = httpx2.post(url, content=body, headers=headers, timeout=10)
        assert refused.status_code == 400, body
        assert refused.json()["error"]["message"]
    nested = b'{"model":' + b"[" * 100_000
    assert httpx2.post(url, content=nested, headers=headers, timeout=10).status_code == 400
    unknown = {"model": "no-such-model", "messages": [{"role": "user", "content": "hi"}]}
    missing = httpx2.post(url, json=unknown, timeout=10)
    assert missing.status_code == 404
    assert healthy(node)


def test_an_unknown_model_is_refused_with_those_there_are(nodes: NodeProcesses) -> None:
    node = nodes.start("one").wait_ready()
    wait_for(lambda: node.json("model", "ls")["items"], "the models to be listed")
    refused = node.cli("load", "no-such-model")
    assert refused.returncode == 3
    assert MODEL in refused.stderr


def huge_model(directory: Path, tokenizer_of: Path) -> None:
    """A model of 96 GB on paper: its weights are one hole in a sparse file."""
    directory.mkdir(parents=True)
    layers, width, hidden = 8, 16384, 131072
    config = {
        "model_type": "llama", "hidden_size": width, "intermediate_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": 128, "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5, "vocab_size": 1024, "rope_theta": 10000.0,
        "max_position_embeddings": 8192, "tie_word_embeddings": True,
    }  # fmt: skip
    (directory / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer_of / name, directory / name)
    shapes: dict[str, list[int]] = {
        "model.embed_tokens.weight": [1024, width],
        "model.norm.weight": [width],
    }
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        shapes |= {
            prefix + "self_attn.q_proj.weight": [width, width],
            prefix + "self_attn.k_proj.weight": [1024, width],
            prefix + "self_attn.v_proj.weight": [1024, width],
            prefix + "self_attn.o_proj.weight": [width, width],
            prefix + "mlp.gate_proj.weight": [hidden, width],
            prefix + "mlp.up_proj.weight": [hidden, width],
            prefix + "mlp.down_proj.weight": [width, hidden],
            prefix + "input_layernorm.weight": [width],
            prefix + "post_attention_layernorm.weight": [width],
        }
    header: dict[str, object] = {}
    offset = 0
    for name, shape in shapes.items():
        size = 2
        for dimension in shape:
            size *= dimension
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    with (directory / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset)


def test_a_model_that_does_not_fit_is_refused_with_the_numbers(
    nodes: NodeProcesses, tmp_path: Path
) -> None:
    huge_model(tmp_path / "giant", nodes.models / MODEL)
    nodes.models = tmp_path
    node = nodes.start("one").wait_ready()

    def listed() -> bool:
        models = node.json("model", "ls")["items"]
        return any(m["model"] == "giant" and m["state"] == "complete" for m in models)

    wait_for(listed, "the giant to be listed", seconds=60)
    refused = node.cli("load", "giant")
    assert refused.returncode == 6, refused.stderr
    assert "GiB" in refused.stderr or "GB" in refused.stderr
    assert node.json("ps")["items"] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_loading_leaves_nothing(
    nodes: NodeProcesses, number: signal.Signals
) -> None:
    node = nodes.start("one").wait_ready()
    assert node.cli("load", MODEL, "--no-wait").returncode == 0
    runners = wait_for(node.runner_ids, "a runner")
    assert node.stop(number) == 0
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in runners.values()), "runners to end")
    assert nodes.processes() == []


def test_a_signal_while_starting_leaves_nothing(nodes: NodeProcesses) -> None:
    node = nodes.start("one")
    wait_for(node.state_directory.exists, "the start")
    os.kill(node.process.pid, signal.SIGTERM)
    node.stop()
    assert nodes.processes() == []
    again = nodes.start("one").wait_ready()
    assert healthy(again)


def test_a_client_that_goes_away_frees_its_place(nodes: NodeProcesses) -> None:
    node = nodes.start("one").wait_ready()
    assert node.cli("load", MODEL).returncode == 0
    body = {
        "model": MODEL,
        "stream": True,
        "messages": [{"role": "user", "content": "Count to one thousand."}],
    }
    for _ in range(5):
        with httpx2.stream(
            "POST", f"{node.url}/v1/chat/completions", json=body, timeout=60
        ) as reply:
            next(reply.iter_lines())

    def running() -> list[object]:
        items = node.json("req", "ls")["items"]
        return [item for item in items if item["phase"] in ("queued", "prefill", "decode")]

    wait_for(lambda: not running(), "the requests to be freed", seconds=10)
    assert node.cli("run", MODEL, "Hi", "--max-tokens", "4").returncode == 0
