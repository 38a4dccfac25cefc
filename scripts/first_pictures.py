"""First pictures of lessons: ``python scripts/first_pictures.py [LESSON...]``.

Writes the texts and first pictures of a lesson beside its module, as JSON. On a new machine they take
seconds or minutes; the page shows those of the file at once and replaces them by its own. Without names, of
all lessons that have such a file.
"""

import json
import sys

from npusim.course.catalogue import lessons
from npusim.course.export import with_first


def main(names: list[str]) -> None:
    """Write the files of some lessons, or of those that have one."""
    for page in lessons():
        path = page.path.with_suffix(".json")
        if page.name in names or (not names and path.is_file()):
            path.write_text(json.dumps(with_first(page), indent=0, ensure_ascii=False) + "\n", "utf-8")
            print(f"{path}: {path.stat().st_size / 1e3:.0f} kB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
