"""Everything that holds and runs models, made once: store, runners, worker, streams, requests."""

from collections.abc import Callable, Mapping

from anyio.abc import TaskGroup

from node.config import Config
from node.core.pace import Pace
from node.io.hub.hub import Hub
from node.io.hub.transfer import Transfer
from node.io.interfaces import is_unspecified, own_host_towards
from node.io.mesh.mesh import Mesh
from node.io.model_store.remote_card import RemoteCards
from node.io.model_store.store import ModelStore
from node.io.queue_file import QueueFile
from node.model.ids import NodeId, RequestId
from node.model.register import DownloadFigures
from node.services.control_plane import ControlPlane
from node.services.downloader import Downloader
from node.services.fetch import Fetch
from node.services.model_keeper import ModelKeeper
from node.services.model_orders import ModelOrders
from node.services.peer_copies import PeerCopies
from node.services.peer_pieces import PeerPieces
from node.services.peer_source import PeerSource
from node.services.requests import Requests
from node.services.streams import Streams
from node.services.supervisor import Supervisor, runner_settings
from node.services.worker import Worker


class WorkPlane:
    """The parts; none of them knows of a session."""

    def __init__(
        self,
        config: Config,
        environment: Mapping[str, str],
        mesh: Mesh,
        control: ControlPlane,
        tasks: TaskGroup,
    ) -> None:
        self._node = mesh.node
        self._bind = config.bind
        self._mesh = mesh
        self._state = control.state
        self.supervisor = Supervisor(
            config.state_directory, runner_settings(environment, control.incarnation)
        )
        store = ModelStore(config.model_directories, config.state_directory, environment)
        self.models = ModelKeeper(store, self._models_changed)
        self.hub = Hub(environment)
        pace = Pace()
        self.pieces = PeerPieces(store.root, mesh.send, tasks)
        copies = PeerCopies(store.root, mesh.open_copy)
        mesh.serve_copies(copies.serve)
        peers = PeerSource(
            mesh.node, lambda: control.registers.registers, self.pieces, control.name_of, copies
        )
        transfer = Transfer()
        fetch = Fetch(store.root, self.hub, transfer, pace, peers)
        self.cards = RemoteCards(config.state_directory, self.hub, transfer, store.shelf)
        self.downloader = Downloader(
            store.root, QueueFile(config.state_directory), fetch, pace, self.models.rescan
        )
        self.orders = ModelOrders(
            mesh.node, store, self.downloader, control.state, mesh.send, tasks
        )
        self.orders.rescan = self.models.rescan
        self.worker = Worker(
            mesh.node,
            self.supervisor,
            control.state,
            control.router.publish,
            self.models.directory_of,
            self._stage_host,
        )
        self.supervisor.on_change(self.worker.runner_changed)
        self.streams = Streams(tasks, mesh.send, self.supervisor.generate, self.cancel_here)
        self.requests = Requests(
            mesh.node,
            control.registers,
            control.state,
            self.supervisor.generate,
            self.streams.read,
        )
        self.on_models_changed: Callable[[], None] = lambda: None

    def downloads(self) -> DownloadFigures:
        """What is on its way to this node, or being made ready."""
        made, fetched = self.models.downloads(), self.downloader.figures()
        return DownloadFigures(downloads=(*made.downloads, *fetched.downloads))

    def cancel(self, request: RequestId) -> bool:
        """End a generation wherever it runs; False where nobody is known to run it."""
        if self.cancel_here(request):
            return True
        taker = self.requests.taker(request)
        if taker is None or taker == self._node:
            return False
        self.streams.cancel(taker, request)
        return True

    def cancel_here(self, request: RequestId) -> bool:
        """End a generation that runs on this node, or that this node has taken."""
        if self.supervisor.cancel(request):
            return True
        target = self.requests.target(request)
        if target is None or target == self._node:
            return False
        self.streams.cancel(target, request)
        return True

    def _stage_host(self, peer: NodeId) -> str:
        """Where a runner here listens for a stage on `peer`: what that node can dial."""
        if self._bind and not is_unspecified(self._bind):
            return self._bind
        proved = self._mesh.proved_addresses().get(peer)
        record = self._state().nodes.get(peer)
        addresses = (*((proved,) if proved else ()), *(record.addresses if record else ()))
        return own_host_towards(addresses) or self._bind or "127.0.0.1"

    def _models_changed(self) -> None:
        self.on_models_changed()
        self.worker.wake()
