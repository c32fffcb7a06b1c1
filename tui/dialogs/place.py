"""Placing a model: choose it, compare the ways to place it with their numbers, launch."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical

from node.model.command import PlaceInstance, Wish
from node.model.errors import ExoctlError
from node.model.ids import ModelId, NodeId
from node.model.topology import Plan
from tui.dialogs.candidates import CandidateDetails, CandidatePane, lines_of
from tui.dialogs.chooser import Choice, ChoicePane
from tui.dialogs.dialog import Dialog, width_of
from tui.shell import Question, Shell, submit
from tui.viewmodel import glyphs, text
from tui.viewmodel.plans import candidate_rows, move_boundary
from tui.widgets.painted import Parts

WIDTH = 130
CONTEXTS = (0, 8192, 16_384, 32_768)


class PlaceDialog(Dialog):
    """Model first where it was not named, then the candidates."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("o", "override", "Place although it does not fit"),
        ("c", "context", "Other context length"),
        ("b", "boundary", "Next boundary"),
        ("left,less_than_sign", "shift(-1)", "Layer to the right node"),
        ("right,greater_than_sign", "shift(1)", "Layer to the left node"),
        ("H", "shift(-5)", "Five layers"),
        ("L", "shift(5)", "Five layers"),
        ("r", "reset", "As planned"),
        *((str(digit), f"toggle_node({digit})", "Node in or out") for digit in range(1, 10)),
    ]

    def __init__(self, shell: Shell, model: str) -> None:
        super().__init__()
        self.shell = shell
        self.model = ModelId(model) if model else None
        self.context_tokens = 0
        self.excluded: set[NodeId] = set()
        self.layer_counts: tuple[int, ...] = ()
        self.layer_nodes: tuple[NodeId, ...] = ()
        self.boundary = 0
        context = shell.context
        choices = [
            Choice(
                key=row.model,
                label=row.model,
                note=f"{text.size(row.bytes_on_disk)} {glyphs.DOT} {row.layer_count} layers "
                f"{glyphs.DOT} {row.fits}",
            )
            for row in context.view.models
            if row.layer_count
        ]
        self.models = ChoicePane(context, "Place which model?", choices, self._take_model)
        self.candidates = CandidatePane(context, self._show_details)
        self.candidates.launch = self._launch
        self.details = CandidateDetails(context)

    def compose(self) -> ComposeResult:
        """Both steps; one of them is shown."""
        yield self.models
        with Vertical(id="place"):
            yield self.candidates
            yield self.details

    def on_mount(self) -> None:
        """Show the step that is due."""
        self.query_one("#place").styles.width = width_of(WIDTH, self.size.width)
        self.models.styles.height = min(len(self.models.choices) + 2, self.size.height - 4)
        if self.model is not None:
            self._take_model(self.model)
        elif self.models.choices:
            self.query_one("#place").display = False
            self.models.focus()
        else:
            self.dismiss()
            self.shell.say("no node has a model yet: `exoctl model pull` fetches one", "warn")

    def _take_model(self, key: str) -> None:
        self.model = ModelId(key)
        self.models.display = False
        self.query_one("#place").display = True
        self.candidates.focus()
        self._plan()

    def _wish(self, *, force: bool = False) -> Wish:
        return Wish(
            nodes=self.layer_nodes if self.layer_counts else (),
            layers=self.layer_counts,
            exclude=tuple(sorted(self.excluded)),
            context_tokens=self.context_tokens,
            force=force,
        )

    def _plan(self) -> None:
        model, wish = self.model, self._wish()
        assert model is not None

        def answered(result: object) -> None:
            if not self.is_attached:
                return
            if isinstance(result, Plan):
                self._take_plan(result)
            elif isinstance(result, ExoctlError):
                self.candidates.rows = []
                self.candidates.empty = result.failure.message
                self._show_details()
                if not self.layer_counts:
                    self.shell.report(result)

        self.shell.context.node.call(lambda node: node.plan(model, wish), answered)

    def _take_plan(self, plan: Plan) -> None:
        rows = candidate_rows(plan, self.shell.context.view.hues)
        pane = self.candidates
        pane.rows = rows
        pane.cursor = 0
        if not rows:
            refusal = plan.refusal
            pane.empty = refusal.message if refusal else "no way to place it"
        listed = min(max(len(rows), 1) + 3, max(6, self.size.height // 3))
        pane.styles.height = listed
        self._show_details()
        wanted = max((lines_of(row) for row in rows), default=1)
        self.query_one("#place").styles.height = min(listed + wanted, self.size.height - 2)

    def _show_details(self) -> None:
        row = self.candidates.chosen
        self.candidates.title_parts = self._title()
        self.candidates.foot_parts = self._keys()
        self.candidates.paint()
        last = len(row.shares) - 2 if row else 0
        self.boundary = max(0, min(self.boundary, last))
        self.details.show(row, self.boundary)

    def _title(self) -> Parts:
        row = self.candidates.chosen
        parts: Parts = [(f"Place {self.model} ", "text b")]
        if row is not None:
            parts.append((f"{glyphs.DOT} {row.context_tokens:,} tokens of context ", "dim"))
        if self.layer_counts:
            parts.append((f"{glyphs.DOT} your layers ", "accent"))
        if self.excluded:
            out = ", ".join(self._name_of(node) for node in sorted(self.excluded))
            parts.append((f"{glyphs.DOT} without {out} ", "warn"))
        return parts

    def _name_of(self, node: NodeId) -> str:
        return self.shell.context.view.names.name(node)

    def _keys(self) -> Parts:
        row = self.candidates.chosen
        keys: Parts = []
        for key, words in (
            ("enter", "launch" if row and row.fits else ""),
            ("o", "" if row is None or row.fits else "place anyway"),
            ("c", "context"),
            ("1-9", "nodes"),
            (f"{glyphs.LEFT} {glyphs.RIGHT}", "layers" if row and len(row.shares) > 1 else ""),
            ("b", "boundary" if row and len(row.shares) > 2 else ""),
        ):
            if words:
                keys += [(f"{key} ", "accent b"), (f"{words}  ", "dim")]
        return [*keys[:-1], (keys[-1][0].rstrip(), "dim")] if keys else []

    def _launch(self) -> None:
        row = self.candidates.chosen
        if row is None:
            return
        if not row.fits:
            self.shell.say(f"{row.why_not or row.verdict}; o places it anyway", "warn")
            return
        self._submit(force=False)

    def _submit(self, *, force: bool) -> None:
        row, model = self.candidates.chosen, self.model
        assert row is not None
        assert model is not None
        wish = Wish(
            nodes=tuple(share.node for share in row.shares),
            layers=tuple(share.layer_count for share in row.shares),
            context_tokens=row.context_tokens,
            force=force,
        )
        self.dismiss()
        names = ", ".join(share.name for share in row.shares)
        submit(self.shell, PlaceInstance(model=model, wish=wish), f"{model} placed on {names}")

    def action_override(self) -> None:
        """Place although it does not fit, after a question with the risk."""
        row = self.candidates.chosen
        if row is None or row.fits:
            return
        lines = (row.why_not or row.verdict, "The machines may swap or the runners be killed.")
        question = Question(title=f"Place {self.model} anyway?", lines=lines, verb="Place")
        self.shell.ask(question, lambda: self._submit(force=True))

    def action_context(self) -> None:
        """Plan for the next context length."""
        place = CONTEXTS.index(self.context_tokens) + 1
        self.context_tokens = CONTEXTS[place % len(CONTEXTS)]
        self._plan()

    def action_boundary(self) -> None:
        """Choose the boundary that moves."""
        row = self.candidates.chosen
        if row is not None and len(row.shares) > 2:
            self.boundary = (self.boundary + 1) % (len(row.shares) - 1)
            self._show_details()

    def action_shift(self, step: int) -> None:
        """Move layers over the chosen boundary and plan again."""
        row = self.candidates.chosen
        if row is None or len(row.shares) < 2:
            return
        counts = tuple(share.layer_count for share in row.shares)
        moved = move_boundary(counts, self.boundary, step)
        if moved != counts:
            self.layer_counts = moved
            self.layer_nodes = tuple(share.node for share in row.shares)
            self._plan()

    def action_reset(self) -> None:
        """Back to what placement would do."""
        self.layer_counts = self.layer_nodes = ()
        self.excluded = set()
        self._plan()

    def action_toggle_node(self, digit: int) -> None:
        """Take the digit-th node out, or in again."""
        nodes = self.shell.context.view.nodes
        if digit > len(nodes) or self.model is None:
            return
        self.excluded ^= {nodes[digit - 1].node}
        self.layer_counts = self.layer_nodes = ()
        self._plan()
