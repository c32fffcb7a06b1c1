"""Markdown as lines of segments, in the palette's inks."""

from typing import ClassVar, cast

from pygments.token import Comment, Error, Keyword, Name, Number, Operator, String
from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, TableElement
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax, SyntaxTheme
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from tui.paint.palette import Palette
from tui.viewmodel.text import clean

_TOKEN_INKS = (
    (Comment, "dim"),
    (Keyword, "hue1"),
    (String, "hue2"),
    (Number, "hue4"),
    (Name.Function, "hue3"),
    (Name.Class, "hue3 b"),
    (Name.Decorator, "hue6"),
    (Name.Builtin, "hue0"),
    (Operator, "hue7"),
    (Error, "text"),
)


class _PaletteSyntax(SyntaxTheme):
    """Code in the palette's hues."""

    def __init__(self, palette: Palette) -> None:
        self._palette = palette

    def get_style_for_token(self, token_type: tuple[str, ...]) -> Style:
        for kind, ink in _TOKEN_INKS:
            if tuple(token_type[: len(kind)]) == tuple(kind):
                return self._palette.style(ink)
        return self._palette.style("text")

    def get_background_style(self) -> Style:
        return Style(bgcolor=self._palette.style("text/code").bgcolor)


class _Heading(Heading):
    """At the left, bold."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text
        text.justify = "left"
        yield text


class _CodeBlock(CodeBlock):
    """On a ground of its own, under the name of its language."""

    theme_of_palette: ClassVar[Palette]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        palette = self.theme_of_palette
        name = self.lexer_name if self.lexer_name not in ("", "text") else "code"
        head = Text(f" {name}".ljust(options.max_width), style=palette.style("dim/code"))
        yield head
        yield Syntax(
            str(self.text).rstrip(),
            self.lexer_name or "text",
            theme=_PaletteSyntax(palette),
            word_wrap=True,
            padding=(0, 1),
        )
        yield Text(" " * options.max_width, style=palette.style("text/code"))


class _Table(TableElement):
    """A thin line under the head and no frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            if isinstance(table, Table):
                table.box = box.SIMPLE_HEAD
                table.padding = (0, 1)
            yield table


class MarkdownPainter:
    """Renders Markdown for one palette."""

    def __init__(self, palette: Palette) -> None:
        style = palette.style
        theme = Theme(
            {
                "markdown.paragraph": style("text"),
                "markdown.text": style("text"),
                "markdown.h1": style("accent bu"),
                "markdown.h2": style("accent b"),
                "markdown.h3": style("text b"),
                "markdown.h4": style("text b"),
                "markdown.h5": style("dim b"),
                "markdown.h6": style("dim"),
                "markdown.code": style("hue4/code"),
                "markdown.link": style("accent u"),
                "markdown.link_url": style("accent u"),
                "markdown.item.bullet": style("accent"),
                "markdown.item.number": style("accent"),
                "markdown.block_quote": style("dim i"),
                "markdown.hr": style("line"),
                "markdown.table.border": style("line"),
                "markdown.table.header": style("dim b"),
                "markdown.strong": style("text b"),
                "markdown.em": style("text i"),
            }
        )
        self._console = Console(
            width=100,
            color_system="truecolor" if palette.has_colour else None,
            force_terminal=True,
            theme=theme,
            legacy_windows=False,
        )
        block = cast(
            "type[CodeBlock]", type("_Block", (_CodeBlock,), {"theme_of_palette": palette})
        )
        elements = {
            **Markdown.elements,
            "heading_open": _Heading,
            "fence": block,
            "code_block": block,
            "table_open": _Table,
        }
        self._markdown = cast(
            "type[Markdown]", type("_Markdown", (Markdown,), {"elements": elements})
        )

    def lines(self, source: str, width: int) -> list[list[Segment]]:
        """The lines of a piece of Markdown, made harmless, none wider than `width`."""
        source = clean(source, keep="\n\t")
        options = self._console.options.update(width=max(8, width))
        rendered = self._console.render_lines(
            self._markdown(source, hyperlinks=False), options, pad=False
        )
        lines: list[list[Segment]] = []
        for line in rendered:
            if _is_blank(line) and (not lines or _is_blank(lines[-1])):
                continue
            lines.append([Segment(clean(part.text), part.style) for part in line])
        if lines and _is_blank(lines[-1]):
            lines.pop()
        return lines


def _is_blank(line: list[Segment]) -> bool:
    return all(
        not part.text.strip() and (part.style is None or part.style.bgcolor is None)
        for part in line
    )
