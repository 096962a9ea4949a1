"""What the pages link to outside docs/ becomes a page, too: the site is whole alone.

MkDocs calls these functions by name (`hooks` in mkdocs.yml).
"""

import pathlib
import posixpath
import re

from mkdocs.structure import files as mkdocs_files

ROOT = pathlib.Path(__file__).parents[2]
# A text in backquotes may be a link's, "[`name`](page.md)"; other backquotes begin code.
LINK = re.compile(r"(?:(?<=\[)`[^`]+`|(?<!`))\]\(([^)\s#]+)(#[^)\s]*)?\)")
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"
SHIM = "site/iframe-worker.js"
# The page of `jbias observe`, and the place in a text where its link is added.
OBSERVED = "you-are-the-network-page.html"
OBSERVED_LINK = "<!-- link to the page -->"
KINDS = {".py": "python", ".mjs": "javascript", ".sh": "bash", ".yml": "yaml"}


def place(path: str) -> str:
    """Where the site has a file or folder of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"


def origin(uri: str) -> str:
    """Which file of the repository a page of the site was."""
    if not uri.startswith("source/"):
        return f"docs/{uri}"
    path = uri.removeprefix("source/")
    return path if (ROOT / path).exists() else path.removesuffix(".md")


def linked(text: str, path: str) -> list[str]:
    """The files and folders of the repository that a text at `path` links to."""
    targets = (match[1] for match in LINK.finditer(text))
    folder = posixpath.dirname(path)
    return [
        posixpath.normpath(posixpath.join(folder, target))
        for target in targets
        if "://" not in target and not target.startswith("mailto:")
    ]


def page(path: str) -> str:
    """A file or folder of the repository as Markdown."""
    file = ROOT / path
    if file.is_dir():
        names = sorted(entry.name for entry in file.iterdir() if entry.is_file())
        lines = [
            f"- [{n}]({file.name}/{n})" for n in names if not n.startswith(("_", "."))
        ]
        return f"{UNSEARCHED}# `{path}`\n\n" + "\n".join(lines) + "\n"
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return UNSEARCHED + text
    kind = KINDS.get(file.suffix, "text")
    return f"{UNSEARCHED}# `{path}`\n\n````{kind}\n{text.rstrip()}\n````\n"


def on_files(files, config):
    """Adds all that is linked to, and what that links to."""
    queue = [
        target
        for file in files.documentation_pages()
        for target in linked(file.content_string, f"docs/{file.src_uri}")
    ]
    seen = set()
    while queue:
        path = queue.pop()
        if path in seen or path.startswith("docs/") or not (ROOT / path).exists():
            continue
        seen.add(path)
        content = page(path)
        new = mkdocs_files.File.generated(config, place(path), content=content)
        files.append(new)
        if path.endswith(".md") or (ROOT / path).is_dir():
            queue += linked(content, path)
    content = observed_page()
    files.append(mkdocs_files.File.generated(config, OBSERVED, content=content))
    return files


def observed_page() -> str:
    """The page of `jbias observe` with the embedded stimuli."""
    from jbias.observing import comparison, page, stimuli

    shown = stimuli.embedded()
    return page.to_html(shown, comparison.of_embedded(shown))


def on_page_markdown(markdown, page, config, files):
    """Lets every link out of docs/ lead to the page made of its target."""
    path = origin(page.file.src_uri)
    markdown = markdown.replace(OBSERVED_LINK, f"[Open the page]({OBSERVED}). ")
    here = posixpath.dirname(page.file.src_uri)

    def moved(match):
        target, anchor = match[1], match[2] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        found = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if not (ROOT / found).exists():
            return match[0]
        address = posixpath.relpath(place(found), here or ".")
        return f"{match[0].rpartition('](')[0]}]({address}{anchor})"

    return LINK.sub(moved, markdown)


def mended(page: str, folder: str) -> str:
    """Names the search for screen readers; takes its script from beside, no network."""
    dialog = 'data-md-component="search" role="dialog"'
    page = page.replace(dialog, f'{dialog} aria-label="Search"')
    shim = posixpath.relpath(SHIM, folder or ".")
    return page.replace("https://unpkg.com/iframe-worker/shim", shim)


def on_post_page(output, page, config):
    """Mends a page."""
    return mended(output, posixpath.dirname(page.url))


def on_post_template(output_content, template_name, config):
    """Mends the page that tells that a page is not there."""
    return mended(output_content, "")
