"""GET /metrics: figures for Prometheus, made from the state and the registers when asked."""

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from node.api.cluster_views import running_requests
from node.api.context import ApiContext
from node.api.exchange import Exchange
from node.api.model_list import INSTANCE_STATUSES, instance_status
from node.handle import NodeHandle
from node.model.register import (
    MachineFigures,
    RequestFigures,
    RouterFigures,
    RunnerFigures,
)

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


async def show_metrics(context: ApiContext, exchange: Exchange) -> None:
    """Answer with every figure."""
    registry = CollectorRegistry()
    registry.register(NodeCollector(context.handle))
    body = generate_latest(registry) + generate_latest(context.counters)
    await exchange.answer(body, content_type=CONTENT_TYPE)


class NodeCollector(Collector):
    """Reads a node's state and registers."""

    def __init__(self, handle: NodeHandle) -> None:
        self._handle = handle

    def collect(self) -> Iterable[Metric]:
        """Every figure as it is now."""
        yield from self._state()
        yield from self._routers()
        yield from self._machines()
        yield from self._requests()

    def _name(self, node: str) -> str:
        for record in self._handle.state.nodes.values():
            if record.node == node:
                return record.name
        return node[:12]

    def _state(self) -> Iterator[Metric]:
        state = self._handle.state
        yield _gauge("exoctl_log_entries", "Entries that this node has applied", state.index + 1)
        yield _gauge("exoctl_session_term", "Term of the session", state.session.term)
        yield _gauge("exoctl_master_known", "1 where a master is known", int(bool(state.master)))
        up = GaugeMetricFamily("exoctl_node_up", "1 where the node is heard", labels=["node"])
        for record in state.nodes.values():
            up.add_metric([record.name], int(not record.lost))
        yield up
        instances = GaugeMetricFamily("exoctl_instances", "Instances by status", labels=["status"])
        statuses = Counter(instance_status(self._handle, each) for each in state.instances)
        for status in INSTANCE_STATUSES:
            instances.add_metric([status], statuses[status])
        yield instances
        runners = GaugeMetricFamily("exoctl_runners", "Runners by phase", labels=["phase"])
        for phase, count in Counter(each.phase.value for each in state.runners.values()).items():
            runners.add_metric([phase], count)
        yield runners

    def _routers(self) -> Iterator[Metric]:
        committed = GaugeMetricFamily(
            "exoctl_node_entries_applied", "Entries that each node has applied", labels=["node"]
        )
        lag = GaugeMetricFamily(
            "exoctl_node_lag_entries", "Entries that each node is behind", labels=["node"]
        )
        waiting = GaugeMetricFamily(
            "exoctl_node_unacknowledged", "Events not yet in the log", labels=["node"]
        )
        log_bytes = GaugeMetricFamily(
            "exoctl_node_log_bytes", "Size of the log on disk", labels=["node"]
        )
        figures = {
            node: register.value
            for (node, _), register in self._handle.registers.items()
            if isinstance(register.value, RouterFigures)
        }
        newest = max((each.index_committed for each in figures.values()), default=-1)
        for node, each in figures.items():
            name = [self._name(node)]
            committed.add_metric(name, each.index_applied + 1)
            lag.add_metric(name, max(0, newest - each.index_applied))
            waiting.add_metric(name, each.unacknowledged)
            log_bytes.add_metric(name, each.log_bytes)
        yield from (committed, lag, waiting, log_bytes)

    def _machines(self) -> Iterator[Metric]:
        total = GaugeMetricFamily(
            "exoctl_node_memory_bytes", "Memory of each machine", labels=["node"]
        )
        free = GaugeMetricFamily(
            "exoctl_node_memory_available_bytes", "Memory that is available", labels=["node"]
        )
        speed = GaugeMetricFamily(
            "exoctl_runner_tokens_per_second", "Output of each runner", labels=["node", "runner"]
        )
        memory = GaugeMetricFamily(
            "exoctl_runner_memory_bytes", "Memory of each runner", labels=["node", "runner"]
        )
        for (node, _), register in self._handle.registers.items():
            value, name = register.value, self._name(node)
            if isinstance(value, MachineFigures):
                total.add_metric([name], value.memory_bytes_total)
                free.add_metric([name], value.memory_bytes_available)
            elif isinstance(value, RunnerFigures):
                for runner in value.runners:
                    speed.add_metric([name, runner.runner], runner.tokens_per_second)
                    memory.add_metric([name, runner.runner], runner.memory_bytes)
        yield from (total, free, speed, memory)

    def _requests(self) -> Iterator[Metric]:
        requests = GaugeMetricFamily(
            "exoctl_requests", "Generations that the nodes remember, by phase", labels=["phase"]
        )
        records = running_requests(self._handle)
        for phase, count in Counter(record.phase.value for record in records).items():
            requests.add_metric([phase], count)
        ended = CounterMetricFamily(
            "exoctl_node_requests_ended", "Generations that ended", labels=["node"]
        )
        failed = CounterMetricFamily(
            "exoctl_node_requests_failed", "Generations that failed", labels=["node"]
        )
        for (node, _), register in self._handle.registers.items():
            if isinstance(register.value, RequestFigures):
                ended.add_metric([self._name(node)], register.value.ended_total)
                failed.add_metric([self._name(node)], register.value.failed_total)
        yield from (requests, ended, failed)


def _gauge(name: str, summary: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, summary, value=value)
